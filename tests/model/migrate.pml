// SPDX-License-Identifier: BSD-2-Clause
/*
 * A model of the protocol by which a region moves from its owner S to another
 * process T, for spin. S copies the region while peers write it, suspends it,
 * sends the rest, and gives the ownership away:
 *
 *   S to T   BEGIN      DATA ... (suspended) DATA FINAL       COMMIT       HEARD
 *   T to S         ACCEPT                               READY        DONE
 *
 * S resumes after an ABORT, which it may say up to COMMIT. After COMMIT it is in DOUBT
 * until it hears DONE, and asks by other connections where the first is lost: a COMMIT
 * again, which T answers by DONE or NOCOPY. It says ASKS by the first one before that, or
 * resets it: an end of it alone means that S has died.
 *
 * A copy is a version number, which each write of a peer makes one more. A step
 * that the other processes cannot come between is atomic here. A connection is two
 * queues, with an end to each that its reader sees: an EOF after all that was said,
 * or a loss, which may come before that: a reset, or a time limit of the reader. A cut
 * of the network is a loss of all connections, in one direction or both; a shorter one
 * is delay, which every queue has. S, T, or both can be killed at any step.
 *
 * Each kind of trouble has a number, so every run ends, and its end is judged.
 *
 * Left out: pages (a copy is one page), handles that are revoked while the region
 * moves, the handshake, peers' connections that break, hosts that refuse for a process
 * that lives. A socket of which a reset's error was taken reads as an EOF next; here a
 * reset is never taken for an EOF.
 *
 * The asserts are of five kinds:
 *   one owner   no two processes serve accesses at a time
 *   data        an owner's copy has all that was acknowledged, but for the writes of an
 *               owner that died in office
 *   an end      if S and T live, one of them serves in the end, or the process that T has
 *               moved the region on to; if T dies before it is in office, S does
 *   a whole     T takes office with a whole copy only, and, where it was not told to,
 *               only after S has died
 *   peers       they are sent to a T that is or was in office, with a handle that it
 *               knows, and an access is done once
 *
 * The verifier is configured by its environment, see configuration() at the end.
 * MUTANT breaks one rule.
 */
#define CONNS 3 /* connections at a time, at most */
#define ROOM  2 /* messages under way in a direction, at most */
#define PEERS 2
#define NONE  255

/* Messages of S, and of T. */
#define BEGIN	1
#define DATA	2
#define FINAL	3
#define ABORT	4
#define COMMIT	5
#define HEARD	6
#define ACCEPT	7
#define REFUSE	8
#define READY	9
#define DONE	10
#define NOCOPY	11
#define ASKS	12 /* of S */

/* States of S; peers are let in up to CLEARED. */
#define OWNER	 0
#define BEGUN	 1
#define COPYING	 2 /* may clear the dirty mark */
#define CLEARED	 3 /* sends what it reads now */
#define SHUTTING 4 /* waits for accesses that are under way */
#define ALONE	 5
#define LAST	 6 /* the last data is sent */
#define OFFERED	 7
#define DECIDES	 8
#define ABORTED	 9 /* the ABORT is said; resumes next */
#define DOUBT	 10
#define MOVED	 11

/* States of T. */
#define EMPTY	 0
#define FILLING	 1
#define WHOLE	 2
#define TAKING	 3 /* has heard COMMIT, says DONE next */
#define OFFICE	 4
#define LETGO	 5 /* moved the region on, or closed it */

/* The end of a queue, as its reader will see it. */
#define OPEN 0
#define EOF  1
#define LOST 2

#include "base.pml"

/* Not in the state: they never change. */
hidden byte ATTEMPTS, ROUNDS, WRITES, SECOND, KILL, ABORTS, ONWARD, MUTANT;

#define LATE   (SECOND == 2)
#define DIRECT (SECOND == 3)

typedef Source {
	byte state;
	bit dead;
	bit gate;     /* peers may begin an access */
	bit dirty;    /* written since it was sent */
	bit asking;   /* its connection is not that of the copy */
	bit asked;    /* by this one */
	bit handles;  /* a second one has been given away */
	byte inside;  /* accesses under way */
	byte version;
	byte attempt;
	byte rounds;
	byte conn;
};

typedef Target {
	byte state;
	bit dead;
	bit heard;    /* that S has heard DONE */
	bit handles;
	byte version;
	byte attempt;
	byte conn;    /* of the copy, or NONE if that was lost */
	byte copy;    /* the same, in office by the COMMIT of that */
	byte reply;   /* of the COMMIT */
	/* ghosts */
	bit office;   /* took it, ever */
	byte took;    /* the version it had then */
};

Source S;
Target T;
chan to_t[CONNS] = [ROOM] of { byte, byte };
chan to_s[CONNS] = [ROOM] of { byte, byte };
bit s_open[CONNS], t_open[CONNS];
byte end_t[CONNS], end_s[CONNS]; /* of to_t, of to_s */
byte cuts, limits;	/* that may come yet */
bit down;		/* the network */
bit onward;		/* ghost: a third process serves */
byte acked;		/* ghost: the last version that a peer was told of */
bit over[PEERS];

#define s_serves (!S.dead && S.gate)
#define t_serves (!T.dead && T.state == OFFICE)

#define max(a, b) ((a) > (b) -> (a) : (b))
#define min(a, b) ((a) < (b) -> (a) : (b))

/* ---- connections ---- */

#define is_free(c) (!s_open[c] && !t_open[c])
#define any_free   (is_free(0) || is_free(1) || is_free(2))

/* Room for a word of S, be it in vain. */
#define has_room(c) (end_t[c] != OPEN || !t_open[c] || len(to_t[c]) < ROOM)

/* A connection to a T that lives, by a network that is there. */
inline dial()
{
	i = 0;
	repeat(!is_free(i), i++);
	S.conn = i;
	s_open[i] = 1;
	t_open[i] = 1;
	i = 0
}

inline both_closed(gone)
{
	when(is_free(gone),
		do
		:: len(to_t[gone]) -> to_t[gone]?_, _
		:: len(to_s[gone]) -> to_s[gone]?_, _
		:: else -> break
		od;
		end_t[gone] = OPEN;
		end_s[gone] = OPEN)
}

/* The reader's end of a queue that its writer closes. The writer's own unread bytes
 * make it a reset, if they had arrived. */
inline closes(its, unread)
{
	if
	:: its == OPEN && len(unread) -> its = LOST
	:: its == OPEN -> its = EOF
	:: else
	fi
}

inline s_close(old)
{
	closes(end_t[old], to_s[old]);
	s_open[old] = 0;
	both_closed(old)
}

inline t_close(old)
{
	closes(end_s[old], to_t[old]);
	t_open[old] = 0;
	both_closed(old)
}

/* A word to a process that has closed is answered by a reset, sooner or later. */
inline s_say(at, kind, value)
{
	if
	:: end_t[at] == OPEN && t_open[at] -> to_t[at]!kind, value
	:: end_s[at] == EOF && !t_open[at] -> MARK(0) end_s[at] = LOST
	:: end_t[at] != OPEN || !t_open[at]
	fi
}

inline t_say(at, kind, value)
{
	if
	:: end_s[at] == OPEN && s_open[at] ->
		assert(len(to_s[at]) < ROOM);
		to_s[at]!kind, value
	:: end_t[at] == EOF && !s_open[at] -> MARK(1) end_t[at] = LOST
	:: end_s[at] != OPEN || !s_open[at]
	fi
}

/* ---- S ---- */

#define s_can (!S.dead)
#define s_in(from, to) (S.state >= (from) && S.state <= (to))

/* S lets go of its connection. */
inline s_leaves()
{
	s_close(S.conn);
	S.conn = NONE;
	S.asking = 0;
	S.asked = 0
}

/* So does one that asks by another: T takes the end of this for the death of S. */
inline s_lets_go(reset)
{
	when(!S.asking && MUTANT != 29,
		if
		:: !reset && has_room(S.conn) -> MARK(27) s_say(S.conn, ASKS, 0)
		:: else -> end_t[S.conn] = LOST
		fi);
	s_leaves()
}

/* S is the owner again. */
inline s_resumes()
{
	assert(!t_serves && !onward);
	assert(T.dead || T.state != LETGO);
	assert(S.version >= acked);
	S.state = OWNER;
	S.gate = 1;
	S.rounds = 0
}

/* S says ABORT before it resumes; where that finds no room, the connection is reset,
 * as an EOF alone would mean that S has died. */
inline s_aborts(lost)
{
	when(!(MUTANT == 2 || MUTANT == 26 && lost),
		if
		:: has_room(S.conn) -> s_say(S.conn, ABORT, 0)
		:: else ->
			MARK(3)
			end_t[S.conn] = (MUTANT == 21 -> end_t[S.conn] : LOST)
		fi);
	if
	:: MUTANT == 2 -> s_resumes(); S.state = ABORTED
	:: else -> S.state = ABORTED
	fi
}

/* S, in DOUBT, knows that T is not in office, and will not be. */
inline rule_r()
{
	assert(!T.office || T.dead);
	s_resumes()
}

inline s_moved()
{
	S.state = MOVED;
	S.version = 0;
	s_say(S.conn, HEARD, 0);
	s_leaves()
}

inline s_hears()
{
	to_s[S.conn]?word, about;
	if
	:: word == ACCEPT && S.state == BEGUN -> S.state = COPYING
	:: word == REFUSE && S.state == BEGUN -> MARK(4) s_leaves(); s_resumes()
	:: word == READY && S.state == OFFERED -> S.state = DECIDES
	:: word == DONE && s_in(DOUBT, DOUBT) -> s_moved()
	:: word == NOCOPY && s_in(DOUBT, DOUBT) -> MARK(5) s_leaves(); rule_r()
	:: else -> assert(MUTANT)
	fi;
	word = 0;
	about = 0
}

/* An EOF at S. By the connection of the copy it says that T has closed, or ended, before
 * it was in office, as DONE would come first. By one to ask again it says only that this
 * question has no answer. */
inline s_eof()
{
	if
	:: S.state < ABORTED -> MARK(6) s_aborts(0)
	:: S.state == DOUBT && S.asking && MUTANT != 12 -> MARK(7) s_leaves()
	:: S.state == DOUBT && !(S.asking && MUTANT != 12) ->
		MARK(8)
		assert(!T.office);
		s_leaves();
		rule_r()
	fi
}

inline s_loses(reset)
{
	if
	:: S.state < ABORTED -> s_aborts(1)
	:: S.state == DOUBT ->
		s_lets_go(reset);
		when(reset && MUTANT == 28 || !reset && MUTANT == 5, rule_r())
	fi
}

/* S asks again, by a connection for that: a COMMIT once more. */
inline s_asks()
{
	if
	:: T.dead -> MARK(9) rule_r() /* its host refuses */
	:: !T.dead ->
		MARK(10)
		dial();
		S.asking = 1
	fi
}

proctype Owner()
{
	byte i, word, about;

end:	do
	:: S.dead -> break
	:: atomic { s_can && S.state == OWNER && S.attempt < ATTEMPTS && !down &&
		    !T.dead && any_free ->
		dial();
		S.attempt++;
		S.state = BEGUN;
		s_say(S.conn, BEGIN, S.attempt) }
	/* The application gives another handle away; it waits while S is suspended. */
	:: atomic { s_can && LATE && !S.handles && s_in(OWNER, ABORTED) &&
		    (S.gate || MUTANT == 19) ->
		S.handles = 1 }
	/* The mark is cleared before the page is read. */
	:: atomic { s_can && S.state == COPYING && S.rounds < ROUNDS && MUTANT != 17 ->
		S.dirty = 0;
		S.state = CLEARED }
	:: atomic { s_can && S.state == CLEARED && has_room(S.conn) ->
		s_say(S.conn, DATA, S.version);
		S.rounds++;
		S.state = COPYING }
	:: atomic { s_can && S.state == COPYING && S.rounds < ROUNDS && MUTANT == 17 &&
		    has_room(S.conn) ->
		s_say(S.conn, DATA, S.version);
		S.rounds++;
		S.state = CLEARED }
	:: atomic { s_can && S.state == CLEARED && MUTANT == 17 ->
		S.dirty = 0;
		S.state = COPYING }
	:: atomic { s_can && S.state == COPYING && S.rounds ->
		S.gate = 0;
		S.state = SHUTTING }
	:: atomic { s_can && S.state == SHUTTING && (!S.inside || MUTANT == 16) ->
		S.state = ALONE }
	:: atomic { s_can && S.state == ALONE && has_room(S.conn) ->
		when(S.dirty && MUTANT != 7,
			MARK(11)
			s_say(S.conn, DATA, S.version);
			S.dirty = 0);
		S.state = LAST }
	:: atomic { s_can && S.state == LAST && has_room(S.conn) ->
		s_say(S.conn, FINAL, S.handles);
		S.state = OFFERED }
	:: atomic { s_can && S.state == DECIDES && has_room(S.conn) ->
		s_say(S.conn, COMMIT, S.attempt);
		S.state = DOUBT }
	/* The application, or its time limit. */
	:: atomic { s_can && ABORTS && (s_in(BEGUN, DECIDES) ||
					MUTANT == 23 && S.state == DOUBT && S.conn != NONE) ->
		s_aborts(0) }
	:: atomic { s_can && S.state == ABORTED ->
		if
		:: MUTANT != 2 -> s_leaves(); s_resumes()
		:: MUTANT == 2 && has_room(S.conn) ->
			s_say(S.conn, ABORT, 0);
			s_leaves();
			S.state = OWNER
		fi }
	:: atomic { s_can && S.conn != NONE && S.state != ABORTED && len(to_s[S.conn]) ->
		s_hears() }
	:: atomic { s_can && S.conn != NONE && S.state != ABORTED && len(to_s[S.conn]) == 0 &&
		    end_s[S.conn] == EOF ->
		s_eof() }
	:: atomic { s_can && S.conn != NONE && S.state != ABORTED &&
		    end_s[S.conn] == LOST ->
		s_loses(1) }
	:: atomic { s_can && S.conn != NONE && S.state != ABORTED && limits ->
		limits--;
		s_loses(0) }
	:: atomic { s_can && S.state == DOUBT && S.conn == NONE && !down &&
		    (any_free || T.dead) ->
		s_asks() }
	:: atomic { s_can && S.state == DOUBT && S.asking && !S.asked ->
		s_say(S.conn, COMMIT, S.attempt);
		S.asked = 1 }
	od
}

/* ---- T ---- */

#define t_can (!T.dead && T.state != TAKING && !(T.state == OFFICE && T.reply != NONE))

inline t_drops()
{
	T.state = EMPTY;
	T.version = 0;
	T.attempt = 0;
	T.handles = 0
}

inline t_takes_office()
{
	assert(!s_serves && !onward);
	assert(T.state == WHOLE || T.state == TAKING);
	assert(T.version >= acked);
	T.state = OFFICE;
	T.office = 1;
	T.took = T.version;
	T.conn = NONE
}

inline t_hears_begin(new)
{
	if
	:: MARK(12) t_say(new, REFUSE, 0); t_close(new)
	:: T.state < TAKING ->
		when(T.conn != NONE, MARK(13) t_close(T.conn));
		t_drops();
		T.conn = new;
		T.attempt = about;
		T.state = FILLING;
		t_say(new, ACCEPT, 0)
	fi
}

#define is_of_copy (about == T.attempt || MUTANT == 15)

/* A COMMIT at T, by any connection, for its copy or for an earlier one. */
inline t_hears_commit(from)
{
	if
	:: T.state == WHOLE && is_of_copy && !(MUTANT == 9 && from != T.conn) ->
		when(from != T.conn, MARK(14));
		T.copy = (from == T.conn -> from : NONE);
		T.reply = from;
		T.state = TAKING
	:: T.state >= OFFICE && is_of_copy && MUTANT != 11 &&
	   !(MUTANT == 14 && T.state == LETGO) ->
		MARK(15)
		T.version = (MUTANT == 10 -> T.took : T.version);
		t_say(from, DONE, 0)
	:: else -> MARK(16) t_say(from, NOCOPY, 0)
	fi;
	when(MUTANT == 6 && T.state == TAKING, t_takes_office())
}

inline t_hears(by)
{
	to_t[by]?word, about;
	if
	:: word == BEGIN -> t_hears_begin(by)
	:: word == DATA && by == T.conn -> T.version = about
	:: word == FINAL && by == T.conn ->
		T.handles = about;
		T.state = WHOLE;
		t_say(by, READY, 0)
	:: word == ABORT && by == T.conn -> MARK(17) T.conn = NONE; t_drops(); t_close(by)
	:: word == COMMIT -> t_hears_commit(by)
	:: word == HEARD -> T.heard = 1
	:: word == ASKS ->
		T.conn = (by == T.conn -> NONE : T.conn);
		T.copy = (by == T.copy -> NONE : T.copy)
	:: else -> assert(by != T.conn)
	fi;
	when(MUTANT == 1 && T.state == WHOLE, t_takes_office());
	word = 0;
	about = 0
}

/* An EOF at T. By the connection of a whole copy it says that S has died, as ABORT or
 * COMMIT would come first; and in office, as HEARD or ASKS would. By another it says
 * nothing of S. */
inline t_eof(by)
{
	t_close(by);
	if
	:: (by == T.conn || MUTANT == 24 && T.conn == NONE) && T.state == WHOLE ->
		MARK(18)
		assert(S.dead);
		t_takes_office();
		T.heard = 1
	:: by == T.copy ->
		MARK(28)
		assert(S.dead || S.state == MOVED);
		T.copy = NONE;
		T.heard = 1
	:: by == T.conn && T.state == FILLING ->
		T.conn = NONE;
		if
		:: MUTANT == 20 -> t_takes_office()
		:: else -> t_drops()
		fi
	:: else
	fi
}

/* A loss at T, which keeps a whole copy, for S to ask for it. */
inline t_loses(by, reset)
{
	if
	:: MUTANT == 25 && by == T.conn && T.state == WHOLE && !reset ->
		closes(end_s[by], to_t[by])
	:: else -> t_close(by)
	fi;
	T.copy = (by == T.copy -> NONE : T.copy);
	when(by == T.conn,
		T.conn = NONE;
		if
		:: T.state == FILLING -> t_drops()
		:: T.state == WHOLE && (reset && MUTANT == 3 || !reset && MUTANT == 27) ->
			t_takes_office()
		:: else -> MARK(19)
		fi)
}

#define ON_CONN(c) \
	:: atomic { t_can && t_open[c] && len(to_t[c]) -> t_hears(c) } \
	:: atomic { t_can && t_open[c] && len(to_t[c]) == 0 && end_t[c] == EOF -> t_eof(c) } \
	:: atomic { t_can && t_open[c] && end_t[c] == LOST -> t_loses(c, 1) } \
	:: atomic { t_can && t_open[c] && limits -> limits--; t_loses(c, 0) }

proctype Heir()
{
	byte word, about;

end:	do
	:: T.dead -> break
	ON_CONN(0)
	ON_CONN(1)
	ON_CONN(2)
	/* T serves once it has said DONE, be it in vain. */
	:: atomic { !T.dead && T.state == TAKING ->
		t_say(T.reply, DONE, 0);
		T.reply = NONE;
		t_takes_office() }
	:: atomic { !T.dead && T.state == OFFICE && T.reply != NONE && MUTANT == 6 ->
		t_say(T.reply, DONE, 0);
		T.reply = NONE }
	:: atomic { !T.dead && T.state == OFFICE && T.reply != NONE && MUTANT == 6 && limits ->
		limits--;
		t_close(T.reply);
		T.reply = NONE }
	/* The application, memory, a time limit. */
	:: atomic { t_can && (T.state == FILLING || T.state == WHOLE) ->
		MARK(20)
		when(T.conn != NONE, t_close(T.conn));
		T.conn = NONE;
		t_drops() }
	/* The region is moved on once S is known to have heard DONE, or to have died: it
	 * says so, its connection ends without a word, or a peer comes that it has sent. */
	:: atomic { t_can && ONWARD && T.state == OFFICE && (T.heard || MUTANT == 13) ->
		MARK(21)
		assert(!s_serves);
		T.state = LETGO;
		T.copy = NONE;
		onward = 1 }
	/* The region is closed by T's application: its writes end with it. */
	:: atomic { t_can && ONWARD && T.state == OFFICE ->
		T.state = LETGO;
		T.copy = NONE;
		acked = min(acked, T.took) }
	od
}

/* ---- peers ---- */

#define knows(handle) (!(p == 1 && LATE) || (handle))

/* A peer does WRITES accesses, at S until it is sent to T. The second one can be of a
 * handle that is given away late, or that T gives away itself. */
proctype Peer(byte p)
{
	byte n, v;
	bit at_t, applied;

	at_t = (p == 1 && DIRECT);
end:	do
	:: atomic { n == WRITES -> break }
	:: atomic { !at_t && S.dead -> break }
	:: atomic { n < WRITES && !at_t && s_can && knows(S.handles) &&
		    (S.gate || MUTANT == 8 && S.state == DOUBT) ->
		assert(S.gate && !t_serves && !onward);
		assert(S.version >= acked);
		S.inside++;
		goto access }
	:: atomic { n < WRITES && !at_t && s_can && MUTANT == 22 && S.state == DOUBT && !applied ->
		S.version++;
		applied = 1 }
	:: atomic { n < WRITES && !at_t && s_can && knows(S.handles) &&
		    (S.state == MOVED || MUTANT == 4 && S.state == DOUBT) ->
		MARK(22)
		assert(T.office);
		assert(knows(T.handles));
		assert(!applied);
		at_t = 1;
		T.heard = 1 }
	:: atomic { at_t && (T.dead || T.state == LETGO) -> break }
	:: atomic { n < WRITES && at_t && t_serves ->
		MARK(23)
		assert(!s_serves && !onward);
		assert(T.version >= acked);
		T.version++;
		acked = max(acked, T.version);
		n++ }
	:: false ->
		/* The page is written, then marked. A death between leaves it unknown. */
access:
		if
		:: atomic { S.dead -> break }
		:: atomic { s_can && MUTANT != 18 -> S.version++; v = S.version }
		:: atomic { s_can && MUTANT == 18 -> S.dirty = 1 }
		fi;
		atomic {
			if
			:: S.dead -> MARK(24) break
			:: s_can && MUTANT != 18 -> S.dirty = 1
			:: s_can && MUTANT == 18 -> S.version++; v = S.version
			fi;
			S.inside--;
			acked = max(acked, v);
			v = 0;
			n++
		}
	od;
	over[p] = 1
}

/* ---- trouble ---- */

/* An EOF has arrived before the cut, or has not. */
inline cut_queue(its)
{
	if
	:: its == OPEN -> its = LOST
	:: its == EOF -> its = LOST
	:: its != OPEN
	fi
}

inline cut_conn(each)
{
	when(!is_free(each),
		when(which & 1, cut_queue(end_t[each]));
		when(which & 2, cut_queue(end_s[each])))
}

proctype Network()
{
	byte which;

end:	do
	:: atomic { !down && cuts ->
		select(which : 1 .. 3);
		cuts--;
		down = 1;
		cut_conn(0);
		cut_conn(1);
		cut_conn(2);
		which = 0 }
	:: atomic { down -> MARK(25) down = 0 }
	od
}

/* kill -9: the system closes the connections. */
inline kill_s()
{
	S.dead = 1;
	when(s_open[0], s_close(0));
	when(s_open[1], s_close(1));
	when(s_open[2], s_close(2))
}

inline kill_t()
{
	T.dead = 1;
	when(T.state == OFFICE, MARK(26) acked = min(acked, T.took));
	when(t_open[0], t_close(0));
	when(t_open[1], t_close(1));
	when(t_open[2], t_close(2))
}

/* All has come to rest: the network is there, and each end has seen the other's. */
inline judge()
{
	assert(is_free(0) && is_free(1) && is_free(2));
	assert(S.dead || S.state == OWNER || S.state == MOVED);
	assert(T.dead || T.state == EMPTY || T.state >= OFFICE);
	assert(s_serves + t_serves + onward <= 1);
	if
	:: !S.dead && !T.dead -> assert(s_serves || t_serves || T.state == LETGO)
	:: !S.dead && T.dead -> assert(s_serves || T.office && S.state == MOVED)
	:: S.dead
	fi;
	assert(over[0]);
	assert(over[1] || LATE && !S.handles || DIRECT && !T.dead && T.state == EMPTY)
}

inline configuration()
{
	c_code {
		ATTEMPTS = set("ATTEMPTS", 1); /* to move the region */
		ROUNDS = set("ROUNDS", 1);     /* of data while peers write, at most */
		WRITES = set("WRITES", 2);     /* of a peer */
		SECOND = set("SECOND", 1);     /* peer: 0, 1: as the first, 2, 3: see Peer */
		KILL = set("KILL", 0);	       /* S, T: bits */
		ABORTS = set("ABORTS", 1);     /* S may do so */
		ONWARD = set("ONWARD", 0);     /* T may let go of the region again */
		now.cuts = set("CUTS", 0);     /* of the network */
		now.limits = set("LIMITS", 0); /* that end a connection that is well */
		MUTANT = set("MUTANT", 0);
	}
}

init {
	atomic {
		configuration();
		S.gate = 1;
		S.conn = NONE;
		T.conn = NONE;
		T.copy = NONE;
		T.reply = NONE;
		over[1] = !SECOND;
		run Owner();
		run Heir();
		run Network();
		run Peer(0);
		when(SECOND, run Peer(1))
	}
	do
	:: atomic { (KILL & 1) && !S.dead -> kill_s() }
	:: atomic { (KILL & 2) && !T.dead -> kill_t() }
	:: atomic { timeout -> judge(); break }
	od
}
