// SPDX-License-Identifier: BSD-2-Clause
/*
 * A model of a channel's protocol (src/channel, docs/channel.md), for spin. Two
 * ends, each one process as each is one thread in C; what an end does without
 * the other being able to come between is one atomic step here. The steps are
 * named as the functions of C, and an end takes them in any order, which is
 * more than kedge_channel_poll() does.
 *
 * An end is allowed to act only where something would change. So a state in
 * which nobody can act is one in which the channel rests, and there (timeout)
 * only operations that wait for the other's application may be left. Then the
 * applications cancel those, one by one, until every table is empty.
 *
 * Left out: bytes of credit (where ANNOUNCE is set a short message finds no room
 * for its data, or does, as it pleases), masks of tags,
 * memory that runs out where that only delays, sleeping and waking, peers that
 * lie (tests/fuzz, tests/unit/channel/test_channel_trouble.c), generations that wrap.
 *
 * The checks are the asserts, which are of four kinds:
 *   told once   every request completes once, and with success only if all of
 *               the message has landed
 *   buffers     nobody writes a buffer after its request completed, nor landing
 *               pages, slots or records that have been given to another message
 *   names       a packet accepted by an operation was meant for it
 *   order       messages of one tag do not overtake, and those that wait for a
 *               receive are no more than was allowed
 *
 * The verifier is configured by its environment, see configuration() at the end.
 * MUTANT breaks one rule.
 */
#define REQS   3 /* requests of a kind, of an end, at most */
#define SLOTS  2 /* operations of an end at a time, at most */
#define PIECES 2 /* of a message, at most */
#define UNEXPECTED  2 /* messages that wait for a receive, at most */

/* The ways in which a message lands: bits, for WAYS. */
#define PULL   1 /* KEDGE_WAY_DIRECT: the receiver reads the sender's memory */
#define HEAP   2 /* the same into kedge_channel_alloc(): both write */
#define LAND   4 /* KEDGE_WAY_SWAP: both write landing pages */
#define STREAM 8 /* KEDGE_WAY_COPY: through a slot */

#define may_push(way) ((way) == HEAP || (way) == LAND)

/* enum op_state */
#define FREE	 0
#define QUEUED	 1
#define RTSED	 2
#define PUT	 3
#define FINI	 4
#define POSTED	 5
#define MATCHED	 6
#define CTSED	 7
#define LANDING	 8
#define REFUSING 9
#define STOP	 10
#define LINGER	 11
#define ANSWER	 12
#define SENT	 13

/* Packets. */
#define EAGER	1
#define RTS	2
#define CTS	3
#define FIN	4
#define REFUSE	5
#define ABORTS	6
#define ABORTED 7
#define CREDIT	8
#define BYE	9
#define DATA	10

/* Statuses. */
#define OK	   0
#define ECANCELED  1
#define EMSGSIZE   2
#define EFAULT	   3
#define ECONNRESET 4

#define TO_SENDER 16 /* with a status, as flags */

#include "base.pml"

/* Not in the state: they never change. */
hidden byte SEND0, SEND1, RECV0, RECV1, LARGE, TAGS, SHORT, CANCEL, CREDITS,
	    TABLE, ROOM, CHUNKS, WAYS, TELLS, FAIL, DEATH, CLOSE, ANNOUNCE,
	    MUTANT;

typedef Op {
	byte state;
	byte gen;
	bit is_recv;
	bit reported;
	bit bulk_open;
	bit started; /* the transport has a record for it */
	bit fin;     /* BULK_FIN; of a sender BULK_ACKED */
	bit said;    /* BULK_SAID */
	byte peer_i;
	byte peer_g;
	byte status;
	byte req;    /* which request of the program; its buffer */
	byte way;
	byte done;   /* chunks by this side */
	byte msg;    /* ghost: the message plus one */
};

/* struct record, and what of it is at its owner. */
typedef Record {
	bit used;
	bit closed;
	byte claim;
	byte sent;  /* sender_done */
	byte taken; /* receiver_done */
	byte owner; /* ghost: the message plus one */
	byte req;   /* ghost: the owner's request */
};

typedef End {
	Op op[SLOTS];
	Record rec;	 /* one; who finds none waits as MATCHED */
	byte land;	 /* the landing pages: message plus one, or LOST */
	byte sent, credit, came, matched, told, unexpected_cnt;
	byte next_send, next_recv;
	bit dead;	 /* ch->dead */
	bit bye;
	bit closing;
	/* ghosts */
	bit died;	 /* the process */
	bit closed;	 /* the transport */
	byte last[2];  /* of each tag: the message matched last, plus one */
	bit was_sent[REQS]; /* completed */
	bit was_recv[REQS];
	bit gave_up[REQS]; /* was_sent, and not with success */
	bit hasty;	 /* closed with a REFUSE unsaid */
	bit got[REQS]; /* of the peer's messages: received with success */
	bit fin_sent[REQS];
	byte buf[REQS * PIECES]; /* of receives: whose data */
	byte page[PIECES];	 /* what is in the landing pages */
	byte slot;		 /* what is in the slot */
};

#define LOST	255
#define GARBAGE 254

End end[2];

/* type, whom (index, generation), from whom, status and flags, message,
 * matched_cnt. With the data goes what needs no room. */
chan ring0 = [2 + SLOTS] of { byte, byte, byte, byte, byte, byte, byte, byte };
chan ring1 = [2 + SLOTS] of { byte, byte, byte, byte, byte, byte, byte, byte };
/* operations in order; messages: is_rts, tag, message, sender (two) */
chan queued0 = [SLOTS] of { byte };
chan queued1 = [SLOTS] of { byte };
chan posted0 = [SLOTS] of { byte, byte };
chan posted1 = [SLOTS] of { byte, byte };
chan unexpected0 = [UNEXPECTED] of { byte, byte, byte, byte, byte };
chan unexpected1 = [UNEXPECTED] of { byte, byte, byte, byte, byte };
/* name, message */
chan replies0 = [2 * REQS] of { byte, byte, byte };
chan replies1 = [2 * REQS] of { byte, byte, byte };

#define ME   end[me]
#define YOU  end[1 - me]
#define OP   end[me].op[i]

#define bit_of(set, n) (((set) >> (n)) & 1)
#define is_large(about) bit_of(LARGE, ((about) - 1) % REQS)
#define room	       (len(out) < ROOM)
#define sends(e)       ((e) -> SEND1 : SEND0)
#define recvs(e)       ((e) -> RECV1 : RECV0)
#define usable	       (!ME.dead && !ME.bye && !ME.closing)
/* Our processes can come to harm only while both are there. */
#define both_there     (!ME.closed && !YOU.closed && !YOU.died)

/* bulk_stop() would say -EBUSY */
#define busy_at(n) (end[me].op[n].bulk_open && end[me].op[n].is_recv && \
	may_push(end[me].op[n].way) && \
	ME.rec.sent < ME.rec.claim - end[me].op[n].done)
#define is_busy busy_at(i)
#define hinders(n) (busy_at(n) && end[me].op[n].state != LINGER)
#define credit_for (ME.sent - ME.credit < CREDITS)

#include "rules.pml"

/* ---- what the application calls ---- */

/* kedge_channel_send(), with a place for send_later() */
inline api_send()
{
	n = ME.next_send;
	ME.next_send++;
	if
	:: ME.dead -> told_send(n)
	:: !ME.dead && !bit_of(LARGE, n) &&
	   (len(queued) == 0 || MUTANT == 13) && credit_for && room ->
		MARK(28)
		ME.sent++;
		packet(EAGER, 0, 0, 0, 0, 0, me * REQS + n + 1);
		told_send(n)
	:: !ME.dead && (ANNOUNCE || bit_of(LARGE, n) || !credit_for || !room ||
			(len(queued) && MUTANT != 13)) ->
		op_get(n);
		OP.msg = me * REQS + n + 1;
		OP.state = QUEUED;
		queued!i
	fi
}

/* recv_unexpected(), of the earliest that fits */
inline recv_unexpected()
{
	unexpected??is_rts, eval(tag), pm, pfi, pfg;
	in_order(pm);
	OP.is_recv = 1;
	if
	:: is_rts ->
		rndv_matched(pm, pfi, pfg)
	:: else ->
		MARK(29)
		OP.msg = pm;
		op_done(OK)
	fi;
	ME.unexpected_cnt--;
	is_matched();
	ME.matched = ME.matched + (MUTANT == 14)
}

/* kedge_channel_recv() */
inline api_recv()
{
	n = ME.next_recv;
	ME.next_recv++;
	tag = bit_of(TAGS, n);
	if
	:: unexpected??[_, eval(tag), _, _, _] ->
		op_get(n);
		recv_unexpected()
	:: else ->
		if
		:: ME.dead -> ME.was_recv[n] = 1
		:: else ->
			op_get(n);
			OP.is_recv = 1;
			OP.state = POSTED;
			posted!tag, i
		fi
	fi
}

/* An operation may wait for ever: until the other end's application does something. */
inline rests()
{
	if
	:: OP.state == POSTED -> MARK(30)
	:: OP.state == RTSED ->
		if
		:: me == 0 -> assert(unexpected1??[1, _, eval(OP.msg), _, _])
		:: else -> assert(unexpected0??[1, _, eval(OP.msg), _, _])
		fi
	:: else ->
		assert(OP.state == QUEUED);
		assert(ME.sent - ME.credit == CREDITS);
		assert(YOU.unexpected_cnt == CREDITS)
	fi
}

#define no_op(e)   (end[e].op[0].state == FREE && \
		    end[e].op[1].state == FREE)
#define at_rest(e) (end[e].died || end[e].closed || \
		    (no_op(e) && end[e].next_send == sends(e) && \
		     end[e].next_recv == recvs(e)))

/* Everything is over: what was taken is back, what was asked for is told. */
inline is_over()
{
	i = 0;
	repeat(i < sends(me), assert(ME.was_sent[i]); i++);
	i = 0;
	repeat(i < recvs(me), assert(ME.was_recv[i]); i++);
	i = 0;
	assert(!ME.rec.used);
	assert(!ME.land || ME.land == LOST && !both_there);
	assert(len(replies) == 0 && len(queued) == 0 && len(posted) == 0);
	assert(len(in) == 0 || ME.dead);
	assert(!unexpected??[1, _, _, _, _])
}

/* ---- rndv_step() and abort_step(): what can be done now for operation i ---- */

#define AT(n) end[me].op[n]
#define S(n)  AT(n).state

#define can_claim(n) (AT(n).is_recv -> \
	S(n) == LANDING && AT(n).way && !AT(n).fin && AT(n).way != STREAM && !TELLS && \
	!ME.rec.closed && ME.rec.claim < CHUNKS : \
	S(n) == PUT && may_push(AT(n).way) && !AT(n).fin && \
	!YOU.rec.closed && YOU.rec.claim < CHUNKS)
#define can_fill(n) (S(n) == PUT && AT(n).way == STREAM && \
	AT(n).done < CHUNKS && AT(n).done == YOU.rec.taken)
#define can_drain(n) (S(n) == LANDING && AT(n).way == STREAM && \
	AT(n).done < ME.rec.sent)
#define can_move(n) (can_claim(n) || can_fill(n) || can_drain(n))

#define put_done(n) (S(n) == PUT && AT(n).fin || \
	S(n) == PUT && AT(n).way && (AT(n).way == STREAM -> \
	YOU.rec.taken == CHUNKS : YOU.rec.taken + AT(n).done == CHUNKS || \
	(MUTANT == 15 && YOU.rec.claim == CHUNKS)))
#define land_done(n) (S(n) == LANDING && AT(n).fin && \
	(AT(n).way != STREAM || AT(n).done == CHUNKS))
#define can_match(n) (S(n) == MATCHED && (!ME.rec.used || !is_large(AT(n).msg)))
#define can_say(n) (room && \
	(S(n) == FINI || S(n) == CTSED || S(n) == REFUSING || \
	 (S(n) == PUT && !AT(n).way)))
#define can_end(n) ((S(n) == STOP || S(n) == ANSWER) && (busy_at(n) -> \
	(AT(n).way == LAND || MUTANT == 2) && !AT(n).reported : \
	room || !AT(n).reported))
#define can_step(n) (put_done(n) || land_done(n) || can_match(n) || \
	can_say(n) || can_end(n))

/* step_active(); kedge_channel_cancel() and check_timers() */
#define ON_SLOT(n) \
	:: atomic { live && usable && can_step(n) -> i = n; goto stepping } \
	:: atomic { live && usable && can_move(n) -> \
		i = n; begin_chunk(); goto copying } \
	:: atomic { live && usable && bit_of(CANCEL, me) && \
		    S(n) != FREE && !waits(n) && !AT(n).reported -> \
		i = n; failed = 2; goto done }
/* give_up() of what has gone does nothing but wait for the peer's word. */
#define waits(n) (S(n) == SENT && MUTANT != 24 && MUTANT != 27)
#define live (!ME.died && !ME.closing)

/* op_done(), with success only if all of the message is there. Eager data came
 * with the packet. */
inline is_told()
{
	when(OP.status == OK && OP.is_recv && OP.way,
		k = 0;
		repeat(k < CHUNKS,
			assert(ME.buf[OP.req * PIECES + k] == OP.msg);
			k++);
		k = 0);
	op_report(OP.status)
}

/* All but the generation is forgotten, for fewer states. */
inline op_clear()
{
	OP.state = FREE;
	OP.is_recv = 0;
	OP.reported = 0;
	OP.fin = 0;
	OP.peer_i = 0;
	OP.peer_g = 0;
	OP.status = 0;
	OP.req = 0;
	OP.way = 0;
	OP.done = 0;
	OP.said = 0;
	OP.msg = 0
}

inline rndv_step()
{
	if
	:: put_done(i) -> put_all()
	:: land_done(i) -> land_all()
	:: can_match(i) -> MARK(31) step_matched()
	:: OP.state == FINI -> step_fin()
	:: OP.state == PUT && !OP.way -> step_data()
	:: OP.state == CTSED -> send_cts()
	:: OP.state == REFUSING -> step_refuse()
	:: OP.state == STOP -> step_stop()
	:: OP.state == ANSWER -> step_answer()
	fi
}

/* The first half of step_chunks(), step_fill(), step_drain() */
inline begin_chunk()
{
	if
	:: OP.way == STREAM -> k = OP.done
	:: OP.way != STREAM && OP.is_recv ->
		k = ME.rec.claim;
		ME.rec.claim++
	:: OP.way != STREAM && !OP.is_recv ->
		assert(YOU.rec.owner == OP.msg || !both_there);
		k = YOU.rec.claim;
		YOU.rec.claim++
	fi
}

/* The sender's buffer is read: what is there after its completion is not the
 * message. */
inline read_source()
{
	from = (YOU.was_sent[(OP.msg - 1) % REQS] || YOU.closed ||
		YOU.died -> GARBAGE : OP.msg)
}

/* Over libfabric: the sender writes alone. */
#define tells (TELLS && !OP.is_recv && OP.way != STREAM)

/* The second half: the data is there, then it is counted. */
inline end_chunk()
{
	if
	:: OP.is_recv ->
		if
		:: OP.way == STREAM -> from = ME.slot
		:: else -> read_source()
		fi;
		write_chunk(me, from);
		OP.done++;
		ME.rec.taken = OP.done
	:: else ->
		assert(YOU.rec.owner == OP.msg || !both_there);
		if
		:: OP.way == STREAM -> MARK(33) YOU.slot = OP.msg
		:: else -> MARK(34) write_chunk(1 - me, OP.msg)
		fi;
		OP.done++;
		YOU.rec.sent = OP.done;
		when(tells && OP.done == CHUNKS,
			OP.fin = 1;
			ME.fin_sent[OP.req] = 1;
			send_op(FIN, OK))
	fi;
	from = 0;
	k = 0
}

/* cross() failed: forgo() of channel/shm/bulk.c */
inline forgo()
{
	k = 0;
	MARK(35)
	if
	:: MUTANT == 17
	:: MUTANT != 17 && OP.is_recv -> OP.done++
	:: MUTANT != 17 && !OP.is_recv ->
		OP.done++;
		YOU.rec.sent = OP.done
	fi
}

/* kedge_channel_close(): all_stopped(), which waits, then the end */
inline stop_all()
{
	i = 0;
	repeat(i < SLOTS,
		when(OP.state != FREE && (OP.state != LINGER || MUTANT == 18), bulk_stop());
		i++);
	i = 0
}

#define any_busy (hinders(0) || hinders(1))
/* all_said(): what was received here is said before the BYE. */
#define unsaid(n) (S(n) == REFUSING && MUTANT != 29)
#define any_unsaid (unsaid(0) || unsaid(1))
#define gone(e)	 (end[e].died || end[e].closed)

proctype Runs(byte me; chan in; chan out; chan queued; chan posted; chan unexpected;
	      chan replies)
{
	byte i, k, n, from;
	byte ptype, pwi, pwg, pfi, pfg, pv, pm, pc, tag;
	bit is_rts, quiet, over, dying;
	byte failed;

again:
	do
	:: ME.died -> break
	:: atomic { live && ME.next_send < sends(me) && has_free ->
		api_send(); goto done }
	:: atomic { live && ME.next_recv < recvs(me) && has_free ->
		api_recv(); goto done }
	/* take_packets() */
	:: atomic { live && usable && len(in) -> take_packet(); goto done }
	/* send_replies() */
	:: atomic { live && usable && len(replies) && room ->
		replies?pfi, pfg, pm;
		packet(ABORTED, pfi, pfg, 0, 0, 0, pm);
		goto done }
	/* send_queue() */
	:: atomic { live && usable && len(queued) && credit_for && room ->
		send_first(); goto done }
	/* send_credit(), when nothing moves */
	:: atomic { live && usable && ME.told != ME.matched &&
		    ME.came - ME.told >= CREDITS / 2 && room &&
		    MUTANT != 16 ->
		MARK(36)
		packet(CREDIT, 0, 0, 0, 0, 0, 0) }
	/* step_active() */
	ON_SLOT(0)
	ON_SLOT(1)
	/* channel_progress(), after a BYE; and check_peer() */
	:: atomic { live && !ME.dead &&
		    (ME.bye || (gone(1 - me) && (len(in) == 0 ||
					  MUTANT == 10))) ->
		MARK(37)
		channel_dies(); dying = 1; i = 0; goto done }
	/* kedge_channel_close() */
	:: atomic { live && bit_of(CLOSE, me) ->
		ME.closing = 1;
		stop_all() }
	:: atomic { !ME.died && ME.closing && !ME.closed && room && unsaid(0) ->
		MARK(45) i = 0; goto stepping }
	:: atomic { !ME.died && ME.closing && !ME.closed && room && unsaid(1) ->
		i = 1; goto stepping }
	/* CLOSE_NS are over where the other end does not read either. */
	:: atomic { !ME.died && ME.closing && !ME.closed &&
		    (!any_busy && !any_unsaid || gone(1 - me) ||
		     (YOU.closing && !room && !any_busy)) ->
		ME.hasty = any_unsaid;
		when(room && !ME.dead, MARK(38) packet(BYE, 0, 0, 0, 0, 0, 0));
		channel_dies(); dying = 1; i = 0; goto done }
	:: ME.closed -> break
	/* Nobody can do anything: the applications give up, one after another. */
	:: atomic { timeout && live && !(at_rest(0) && at_rest(1)) &&
		    !no_op(me) ->
		MARK(39)
		i = 0;
		repeat(i < SLOTS && OP.state == FREE, i++);
		rests();
		failed = 2;
		goto done }
	:: atomic { timeout && live && at_rest(0) && at_rest(1) ->
		is_over();
		break }
	od;
	goto out_of_it;

	/* Others run meanwhile, and this process may die of it. */
copying:
	if
	:: ME.died -> goto out_of_it
	:: atomic { !ME.died -> end_chunk(); goto done }
	:: atomic { !ME.died && FAIL && OP.way != STREAM && OP.way != HEAP ->
		forgo();
		failed = 1;
		goto done }
	fi;

	atomic {
		false;
stepping:
		rndv_step();
		goto done
	}

	/* The end of every step: what is left of it is in flags. A jump from one
	 * atomic sequence into another does not end it. */
	atomic {
		false;
done:
		if
		:: dying -> op_dies()
		:: failed == 1 -> give_up(EFAULT)
		:: failed == 2 -> give_up(ECANCELED)
		:: else
		fi;
		failed = 0;
		when(over,
			over = 0;
			bulk_close();
			is_told();
			op_clear());
		if
		:: dying && i < SLOTS - 1 -> i++; goto done
		:: dying && i == SLOTS - 1 ->
			dying = 0;
			ME.closed = ME.closing
		:: else
		fi;
		i = 0; n = 0; ptype = 0; pwi = 0; pwg = 0; pfi = 0; pfg = 0;
		pv = 0; pm = 0; pc = 0; tag = 0; is_rts = 0;
		goto again
	}
out_of_it:
	skip
}

inline configuration()
{
	c_code {
		SEND0 = set("SEND0", 1);   /* messages that end 0 sends */
		SEND1 = set("SEND1", 0);
		RECV0 = set("RECV0", SEND1); /* receives that it posts */
		RECV1 = set("RECV1", SEND0);
		LARGE = set("LARGE", 7);   /* messages by rendezvous: bits */
		TAGS = set("TAGS", 0);	   /* of messages and receives: bits */
		SHORT = set("SHORT", 0);   /* too short receives: bits */
		CANCEL = set("CANCEL", 0); /* ends that give up: bits */
		CREDITS = set("CREDITS", 1); /* unexpected_cnt, up to UNEXPECTED */
		TABLE = set("TABLE", 1);   /* operations at a time */
		ROOM = set("ROOM", 2);	   /* packets in a ring, up to 2 */
		CHUNKS = set("CHUNKS", 2); /* of a message, up to PIECES */
		WAYS = set("WAYS", 15);	   /* how messages may land */
		TELLS = set("TELLS", 0);  /* a sender's last chunk is the FIN */
		FAIL = set("FAIL", 0);	   /* what can be refused may be */
		DEATH = set("DEATH", 0);   /* ends that may die: bits */
		ANNOUNCE = set("ANNOUNCE", 0); /* short ones, without data */
		CLOSE = set("CLOSE", 0);   /* ends that may close: bits */
		MUTANT = set("MUTANT", 0);
	}
}

init {
	configuration();
	atomic {
		run Runs(0, ring0, ring1, queued0, posted0, unexpected0, replies0);
		run Runs(1, ring1, ring0, queued1, posted1, unexpected1, replies1)
	}
	if
	:: DEATH & 1 -> end[0].died = 1
	:: DEATH & 2 -> end[1].died = 1
	:: true
	fi
}
