// SPDX-License-Identifier: BSD-2-Clause
/*
 * The rules of the protocol: what an end does with what it gets, a function of C
 * each, with its name. Part of channel.pml, which has the state and says who
 * calls what when.
 */

/* ---- fast.h, ops.c ---- */

/* op_get(): the lowest that is free */
inline op_get(request)
{
	i = 0;
	repeat(OP.state != FREE, i++);
	OP.gen++;
	OP.req = request
}

#define has_free (ME.op[0].state == FREE || \
		  (TABLE > 1 && ME.op[1].state == FREE))

inline told_recv()
{
	assert(!ME.was_recv[OP.req]);
	ME.was_recv[OP.req] = 1
}

inline told_send(which)
{
	assert(!ME.was_sent[which]);
	ME.was_sent[which] = 1
}

inline op_report(how)
{
	when(!OP.reported,
		OP.reported = 1;
		if
		:: OP.is_recv ->
			told_recv();
			when(how == OK && OP.way && !ME.closing,
				assert(!YOU.gave_up[(OP.msg - 1) % REQS]);
				ME.got[(OP.msg - 1) % REQS] = 1)
		:: else ->
			told_send(OP.req);
			/* Eager ones are QUEUED at their end; a receive that is
			 * too short has its message. */
			assert(how != OK || OP.state == QUEUED || SHORT ||
			       YOU.got[OP.req]);
			assert(how == OK || !YOU.got[OP.req] || YOU.died ||
			       YOU.hasty || ME.closing);
			ME.gave_up[OP.req] = (how != OK && !ME.closing)
		fi)
}

/* op_done() and the bulk_close() before it: at the end of this step */
inline op_done(how)
{
	OP.status = how;
	over = 1
}

/* op_find(): i, or SLOTS */
inline op_find(where, which)
{
	i = SLOTS;
	when(where < SLOTS && ME.op[where].state != FREE && ME.op[where].gen == which, i = where)
}

/* ---- send.c ---- */

inline packet(kind, to_i, to_g, from_i, from_g, value, about)
{
	ME.told = ME.matched;
	out!kind, to_i, to_g, from_i, from_g, value, about, ME.matched
}

/* send_op(); the caller has seen room */
inline send_op(kind, how)
{
	packet(kind, OP.peer_i, OP.peer_g, i, OP.gen,
	       how + (OP.is_recv -> TO_SENDER : 0), OP.msg)
}

inline send_credit()
{
	when(ME.told != ME.matched && ME.came - ME.told >= CREDITS / 2 && room,
		MARK(0)
		packet(CREDIT, 0, 0, 0, 0, 0, 0))
}

/* matched() of progress.c */
inline is_matched()
{
	ME.matched++;
	send_credit()
}

/* send_first(): the first of the queue, which can go */
inline send_first()
{
	queued?<i>;
	ME.sent++;
	if
	:: bit_of(LARGE, OP.req) ->
		OP.bulk_open = 1; /* offer() */
		packet(RTS, 0, 0, i, OP.gen, 0, OP.msg);
		OP.state = RTSED
	:: !bit_of(LARGE, OP.req) ->
		packet(EAGER, 0, 0, 0, 0, 0, OP.msg);
		op_done(OK)
	:: !bit_of(LARGE, OP.req) && ANNOUNCE ->
		packet(RTS, 0, 0, i, OP.gen, 0, OP.msg);
		OP.state = RTSED
	fi;
	queued?_
}

/* ---- the transport's part of a message: channel/shm/bulk.c ---- */

inline bulk_stop()
{
	when(OP.bulk_open && OP.started && (OP.is_recv || !OP.fin),
		if
		:: OP.way == STREAM
		:: OP.way != STREAM && OP.is_recv -> ME.rec.closed = 1
		:: OP.way != STREAM && !OP.is_recv ->
			assert(YOU.rec.owner == OP.msg || !both_there);
			YOU.rec.closed = 1
		fi)
}

/* A chunk into where the message lands at end @whose. */
inline write_chunk(whose, value)
{
	if
	:: OP.way == LAND ->
		assert(end[whose].land == OP.msg || end[whose].land == LOST ||
		       !both_there);
		end[whose].page[k] = value
	:: else ->
		assert(!end[whose].was_recv[end[whose].rec.req] || !both_there);
		end[whose].buf[end[whose].rec.req * PIECES + k] = value
	fi
}

/* ---- abort.c ---- */

inline bulk_close()
{
	when(OP.bulk_open,
		quiet = 1;
		when(OP.is_recv && OP.way == LAND,
			bulk_stop();
			quiet = !is_busy);
		OP.bulk_open = 0;
		when(OP.is_recv,
			when(OP.way == LAND, ME.land = (quiet -> 0 : LOST));
			ME.rec.used = 0;
			ME.rec.closed = 0;
			ME.rec.claim = 0;
			ME.rec.sent = 0;
			ME.rec.taken = 0;
			ME.rec.owner = 0;
			ME.rec.req = 0;
			ME.slot = 0);
		OP.started = 0;
		quiet = 0)
}

inline stop_it()
{
	when(!(is_busy && OP.way != LAND && MUTANT != 2), op_report(OP.status));
	when(!is_busy && room,
		send_op(ABORTS, OP.status);
		OP.state = LINGER;
		when(MUTANT == 4, op_done(OP.status)))
}

inline step_stop()
{
	if
	:: !OP.is_recv && (OP.fin || OP.said) && MUTANT != 19 ->
		bulk_close(); /* has_gone() */
		if
		:: OP.said -> MARK(6) op_done(OK)
		:: else -> MARK(41) OP.state = SENT
		fi
	:: else -> stop_it()
	fi
}

/* Its first step_stop() is a step of its own. */
inline give_up(how)
{
	if
	:: OP.state == QUEUED ->
		MARK(1)
		queued??eval(i);
		op_done(how)
	:: OP.state == POSTED ->
		MARK(2)
		posted??_, eval(i);
		op_done(how)
	:: OP.state == REFUSING || OP.state == STOP || OP.state == LINGER ||
	   OP.state == ANSWER -> MARK(3)
	:: OP.state == SENT && MUTANT == 27 -> op_report(OK)
	:: else ->
		OP.status = how;
		OP.state = STOP;
		bulk_stop()
	fi
}

/* reply_aborted() */
inline reply_aborted(to_i, to_g, about)
{
	if
	:: MUTANT == 5
	:: MUTANT != 5 && len(replies) == 0 && room ->
		MARK(4)
		packet(ABORTED, to_i, to_g, 0, 0, 0, about)
	:: MUTANT != 5 && !(len(replies) == 0 && room) ->
		MARK(5)
		replies!to_i, to_g, about
	fi
}

inline step_answer()
{
	when(!(is_busy && OP.way != LAND), op_report(OP.status));
	when(!is_busy && room,
		send_op(ABORTED, 0);
		op_done(OP.status))
}

/* Its first step_answer() is a step of its own. */
inline answer()
{
	if
	:: OP.state == FINI && MUTANT == 28 -> OP.status = OK
	:: OP.state == REFUSING -> MARK(7)
	:: OP.state == STOP -> MARK(8)
	:: else -> MARK(9) OP.status = pv & 15
	fi;
	OP.peer_i = pfi;
	OP.peer_g = pfg;
	OP.state = ANSWER;
	bulk_stop()
}

/* receiver_of(): i, or SLOTS */
inline receiver_of()
{
	i = 0;
	do
	:: i < SLOTS && !(OP.is_recv && OP.state != POSTED &&
			  OP.peer_i == pfi && OP.peer_g == pfg) -> i++
	:: else -> break
	od;
	when(MUTANT == 6, i = SLOTS)
}

/* abort_target() */
inline abort_target()
{
	if
	:: pwg == 0 && (pv & TO_SENDER) -> i = SLOTS
	:: pwg == 0 && !(pv & TO_SENDER) -> receiver_of()
	:: else ->
		op_find(pwi, pwg);
		when(i < SLOTS && OP.is_recv == (pv & TO_SENDER) / TO_SENDER, i = SLOTS)
	fi
}

/* abort_received() without an operation: a message that waits is dropped. */
inline abort_of_nobody()
{
	if
	:: !(pv & TO_SENDER) && pwg == 0 && MUTANT != 7 &&
	   unexpected??[1, _, _, eval(pfi), eval(pfg)] ->
		MARK(10)
		unexpected??1, _, n, eval(pfi), eval(pfg);
		assert(n == pm);
		ME.unexpected_cnt--;
		is_matched()
	:: else
	fi;
	reply_aborted(pfi, pfg, pm)
}

inline abort_received()
{
	abort_target();
	if
	:: i == SLOTS -> abort_of_nobody()
	:: else ->
		assert(OP.msg == pm);
		if
		:: OP.state == LINGER ->
			MARK(11)
			when(MUTANT != 8, op_done(OP.status))
		:: OP.state == ANSWER -> assert(false) /* one ABORT is enough */
		:: OP.state == STOP && MUTANT == 9
		:: else ->
			/* Its sender has said all, and gives up no more. */
			assert(!(OP.state == LANDING && OP.fin));
			answer()
		fi
	fi
}

inline aborted_received()
{
	op_find(pwi, pwg);
	when(i < SLOTS && OP.state == LINGER,
		assert(OP.msg == pm);
		MARK(13)
		op_done(OP.status))
}

/* ---- rndv.c ---- */

inline step_refuse()
{
	send_op(REFUSE, OP.status);
	op_done(OP.status)
}

inline refuse(how)
{
	MARK(15)
	OP.status = how;
	OP.state = REFUSING;
	op_report(how)
}

inline send_cts()
{
	if
	:: room ->
		packet(CTS, OP.peer_i, OP.peer_g, i, OP.gen, OP.way, OP.msg);
		OP.state = LANDING
	:: else -> MARK(17) OP.state = CTSED
	fi
}

/* bulk_accept() */
inline accept(by)
{
	MARK(32)
	OP.way = by;
	OP.bulk_open = 1;
	OP.started = 1;
	ME.rec.used = 1;
	ME.rec.owner = OP.msg;
	ME.rec.req = OP.req
}

/* way_accept() within step_matched(): by any of the ways */
inline step_matched()
{
	if
	:: bit_of(SHORT, OP.req) -> refuse(EMSGSIZE)
	:: FAIL && !bit_of(SHORT, OP.req) -> refuse(EFAULT)
	:: !bit_of(SHORT, OP.req) && !is_large(OP.msg) ->
		OP.way = 0; /* accept_short() */
		send_cts()
	:: !bit_of(SHORT, OP.req) && is_large(OP.msg) ->
		if
		:: WAYS & PULL -> accept(PULL)
		:: WAYS & HEAP -> accept(HEAP)
		:: (WAYS & LAND) && !ME.land -> accept(LAND); ME.land = OP.msg
		:: WAYS & STREAM -> accept(STREAM)
		:: WAYS == LAND && ME.land -> accept(STREAM) /* instead() */
		fi;
		send_cts()
	fi
}

/* Its first step_matched() is a step of its own. */
inline rndv_matched(about, from_i, from_g)
{
	OP.msg = about;
	OP.peer_i = from_i;
	OP.peer_g = from_g;
	OP.state = MATCHED
}

inline rndv_cts()
{
	op_find(pwi, pwg);
	if
	:: i < SLOTS && !OP.is_recv &&
	   (OP.state == RTSED || (MUTANT == 3 && OP.state == LINGER)) ->
		assert(OP.msg == pm);
		OP.peer_i = pfi;
		OP.peer_g = pfg;
		/* transport_ops.start */
		if
		:: !OP.bulk_open && (MUTANT != 21 || room) ->
			assert(!pv);
			OP.state = PUT
		:: !OP.bulk_open && MUTANT == 21 && !room -> op_done(OK)
		:: OP.bulk_open -> OP.way = pv; OP.started = 1; OP.state = PUT
		:: OP.bulk_open && FAIL -> MARK(19) OP.started = 0; failed = 1
		fi
	:: else -> MARK(20)
	fi
}

inline rndv_fin()
{
	op_find(pwi, pwg);
	if
	:: i < SLOTS && OP.is_recv && OP.state == LANDING ->
		assert(OP.msg == pm);
		OP.fin = 1
	:: else -> MARK(21)
	fi
}

inline rndv_data()
{
	op_find(pwi, pwg);
	if
	:: i < SLOTS && OP.is_recv && OP.state == LANDING ->
		MARK(42)
		assert(OP.msg == pm && !OP.bulk_open);
		assert(!YOU.gave_up[(pm - 1) % REQS]);
		ME.got[(pm - 1) % REQS] = 1;
		OP.status = OK;
		OP.state = REFUSING;
		op_report(OK)
	:: else -> MARK(43)
	fi
}

inline rndv_refuse()
{
	op_find(pwi, pwg);
	if
	:: i < SLOTS && !OP.is_recv &&
	   (OP.state == RTSED || OP.state == SENT) && MUTANT != 11 ->
		assert(OP.msg == pm);
		assert(OP.state == RTSED || YOU.got[(pm - 1) % REQS]);
		op_done(((pv & 15) == EMSGSIZE -> OK : pv & 15))
	:: i < SLOTS && !OP.is_recv && OP.bulk_open &&
	   (OP.state == PUT || OP.state == STOP && MUTANT != 30) &&
	   (pv & 15) == OK && MUTANT != 25 ->
		MARK(47)
		OP.said = 1
	:: else -> MARK(22)
	fi
}

/* Its first step_data() is a step of its own. */
inline step_data()
{
	send_op(DATA, OK);
	OP.state = SENT;
	when(MUTANT == 22, op_done(OK))
}

inline step_fin()
{
	ME.fin_sent[OP.req] = 1;
	send_op(FIN, OK);
	OP.state = SENT;
	when(MUTANT == 23, op_done(OK))
}

/* step_put() when all of it has landed; its step_fin() is a step of its own */
inline put_all()
{
	MARK(23)
	bulk_close();
	if
	:: OP.fin && OP.said -> op_done(OK)
	:: OP.fin && !OP.said -> OP.state = SENT
	:: else -> OP.state = FINI
	fi
}

/* step_land() when all of it has landed, and FIN said so; way_finish() is
 * its first half */
inline land_all()
{
	when(OP.way == LAND,
		k = 0;
		repeat(k < CHUNKS,
			ME.buf[OP.req * PIECES + k] = ME.page[k];
			ME.page[k] = 0;
			k++);
		k = 0);
	MARK(24)
	OP.status = OK;
	OP.state = REFUSING;
	op_report(OK)
}

/* ---- progress.c, match.c ---- */

/* match_posted(): i, or SLOTS; and that it is this message's turn */
inline match_posted()
{
	if
	:: posted??[eval(tag), _] -> posted??eval(tag), i
	:: else -> i = SLOTS
	fi
}

/* A message has been matched; those of its tag before it were, or are gone. */
inline in_order(about)
{
	assert(about > ME.last[tag]);
	ME.last[tag] = about
}

inline unexpected_add(kind)
{
	assert(ME.unexpected_cnt < CREDITS);
	ME.unexpected_cnt++;
	unexpected!kind, tag, pm, pfi, pfg
}

inline eager_received()
{
	match_posted();
	ME.came++;
	if
	:: i == SLOTS -> MARK(25) unexpected_add(0)
	:: else ->
		MARK(26)
		in_order(pm);
		OP.msg = pm;
		op_done(OK);
		is_matched()
	fi
}

inline rts_received()
{
	match_posted();
	ME.came++;
	if
	:: i == SLOTS -> unexpected_add(1)
	:: else ->
		in_order(pm);
		rndv_matched(pm, pfi, pfg);
		is_matched()
	fi
}

/* packet_received() */
inline take_packet()
{
	in?ptype, pwi, pwg, pfi, pfg, pv, pm, pc;
	ME.credit = pc;
	tag = bit_of(TAGS, (pm - 1) % REQS);
	if
	:: ptype == EAGER -> eager_received()
	:: ptype == RTS -> rts_received()
	:: ptype == CTS -> rndv_cts()
	:: ptype == FIN -> rndv_fin()
	:: ptype == REFUSE -> rndv_refuse()
	:: ptype == ABORTS -> abort_received()
	:: ptype == ABORTED -> aborted_received()
	:: ptype == DATA -> rndv_data()
	:: ptype == CREDIT
	:: ptype == BYE -> ME.bye = 1
	fi
}

/* lands_still(), of what the sender said is there */
inline drain_all()
{
	repeat(OP.way == STREAM && OP.done < CHUNKS,
		/* else bulk_step() says that the peer broke the rules */
		assert(ME.rec.sent > OP.done);
		k = OP.done;
		write_chunk(me, ME.slot);
		OP.done++);
	k = 0
}

/* op_dies() of operation i, whatever it is */
inline op_dies()
{
	if
	:: OP.state == FREE
	:: OP.state == LANDING && OP.fin && MUTANT != 12 ->
		MARK(27)
		drain_all();
		land_all();
		op_done(OK)
	:: !OP.is_recv && OP.said && MUTANT != 20 -> MARK(40) op_done(OK)
	:: OP.state == SENT && MUTANT == 26 -> op_done(OK)
	:: else ->
		/* A message said to have landed is not lost, but for a cancel. */
		assert(!(OP.state == LANDING &&
			 YOU.fin_sent[(OP.msg - 1) % REQS]) || ME.closing);
		if
		:: OP.state == QUEUED -> queued??eval(i)
		:: OP.state == POSTED -> posted??_, eval(i)
		:: else
		fi;
		op_done(ECONNRESET)
	fi
}

inline channel_dies()
{
	ME.dead = 1;
	/* unexpected_drop_rts() */
	do
	:: unexpected??[1, _, _, _, _] -> unexpected??1, _, _, _, _
	:: else -> break
	od;
	/* No packet is taken any more, and no reply sent. */
	repeat(len(replies), replies?_, _, _)
}
