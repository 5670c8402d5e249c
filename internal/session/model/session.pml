/* Sessions of an attached worker with relays: rows that change, crashes, restarts, a relay that is
 * cut off from the others, and moves, in every order. The model follows
 * docs/reference/session-protocol.md and not the code.
 *
 * `make test-model` checks it, and that it finds each of these faults:
 *
 *	MOVED_IS_LEAVE  a worker that goes to another relay counts as one that leaves the fleet
 *	NEWEST_ROW      a worker follows only the row that arrived last
 *	FIRST_OF_ROW    a worker moves as soon as it has a session with one relay of its rows
 *	NO_BEATS        a relay does not notice that a worker has died
 *
 * A step is what one side does at once, and is possible only if it changes something. When no step
 * is possible, all that was sent has arrived, and the end must be right.
 */
#define N 3	/* relays, in the order in which the rows of this worker prefer them */
#define M 2	/* sessions of a worker */
#ifndef FAULTS
#define FAULTS 2
#endif

byte life = 1;		/* of the worker; later ones are larger */
bool alive = true;
bool ended;		/* the worker does not come back */
bool up[N] = true;	/* relays that run */
bool gone[N];		/* relays that do not come back */
bool cut[N];		/* a relay that no gossip and no list reaches; sessions do */
byte view[N] = 7;	/* the relays that a relay sees, as bits; itself always */
bool link[N];		/* sessions, as the worker sees them */
byte row[N];		/* the newest row from a relay, spares included, as bits */
byte last;		/* the relay whose row arrived last */
byte held[N];		/* the life that a relay has a session with; 0 is none */
byte list[9];		/* list[N*a+b]: what b lists, as a has read it */
byte left;		/* the life that has left, as relays were told */
byte faults = FAULTS;

#define BIT(i) (1 << (i))
#define REACH(a, b) (up[b] && (a == b || (!cut[a] && !cut[b])))
#define SEEN(a) ((REACH(a, 0) -> 1 : 0) | (REACH(a, 1) -> 2 : 0) | (REACH(a, 2) -> 4 : 0))
#define RUNNING ((up[0] -> 1 : 0) | (up[1] -> 2 : 0) | (up[2] -> 4 : 0))
#define MAX(x, y) ((x) > (y) -> (x) : (y))
#define LISTED(a) MAX(list[N*a], MAX(list[N*a+1], list[N*a+2]))
#define BELIEVED(a) MAX(held[a], LISTED(a))
#ifdef FIRST_OF_ROW
#define MAY_MOVE (WANTED & LINKED)
#else
#define MAY_MOVE (WANTED && !(WANTED & ~LINKED))
#endif
#ifdef NO_BEATS
#define SILENT(a) (alive && !(link[a] && held[a] == life))
#else
#define SILENT(a) !(link[a] && held[a] == life)
#endif

/* the first M of a set of the three relays */
#define FIRST(s) ((s) == 7 -> 3 : (s))

/* The worker wants the first M of each row that it has; a relay that it does not reach gives its
 * place to the next one. It follows all rows: a relay that is cut off sends one of itself alone. */
#ifdef NEWEST_ROW
#define FOLLOWS(i) (link[i] && i == last)
#else
#define FOLLOWS(i) (link[i])
#endif
#define PART(i) (FOLLOWS(i) -> FIRST(row[i] & RUNNING) : 0)
#define WANTED (PART(0) | PART(1) | PART(2))
#define LINKED ((link[0] -> 1 : 0) | (link[1] -> 2 : 0) | (link[2] -> 4 : 0))
#define TOUCH ((link[0] && !cut[0]) || (link[1] && !cut[1]) || (link[2] && !cut[2]))

#define RELAY(a) \
	:: d_step { up[a] && view[a] != SEEN(a) -> view[a] = SEEN(a) }	/* gossip */ \
	:: d_step { up[a] && link[a] && held[a] == life && row[a] != view[a] -> row[a] = view[a]; last = a } \
	:: d_step { up[a] && held[a] && SILENT(a) -> held[a] = 0 }	/* the session has ended */ \
	:: d_step { alive && link[a] && held[a] != life -> link[a] = false; row[a] = 0 } \
	:: d_step { alive && up[a] && !link[a] && (LINKED == 0 || (WANTED & BIT(a))) -> \
		link[a] = true; held[a] = life; row[a] = view[a]; last = a } \
	:: d_step { alive && up[a] && link[a] && !(WANTED & BIT(a)) && MAY_MOVE -> /* moved */ \
		link[a] = false; row[a] = 0; held[a] = 0; LEAVES; \
		assert(cut[a] || TOUCH) } \
	:: atomic { faults && up[a] -> up[a] = false; view[a] = 0; held[a] = 0; faults--; \
		list[N*a] = 0; list[N*a+1] = 0; list[N*a+2] = 0; \
		if :: gone[a] = true :: skip fi } \
	:: d_step { !up[a] && !gone[a] -> up[a] = true; view[a] = BIT(a) } \
	:: d_step { faults && up[a] && !cut[0] && !cut[1] && !cut[2] -> cut[a] = true; faults-- } \
	:: d_step { cut[a] -> cut[a] = false }
#ifdef MOVED_IS_LEAVE
#define LEAVES left = life
#else
#define LEAVES skip
#endif

#define LIST(a, b) \
	:: d_step { up[a] && (view[a] & BIT(b)) && REACH(a, b) && list[N*a+b] != held[b] -> list[N*a+b] = held[b] } \
	:: d_step { up[a] && !(view[a] & BIT(b)) && list[N*a+b] -> list[N*a+b] = 0 }

#define RIGHT(a) (!up[a] || BELIEVED(a) == (alive -> life : 0))

active proctype fleet() {
	do
	RELAY(0)
	RELAY(1)
	RELAY(2)
	LIST(0, 1)
	LIST(0, 2)
	LIST(1, 0)
	LIST(1, 2)
	LIST(2, 0)
	LIST(2, 1)
	:: atomic { faults && alive -> alive = false; faults--; link[0] = false; link[1] = false; link[2] = false;
		row[0] = 0; row[1] = 0; row[2] = 0;
		if :: ended = true :: skip fi }
	:: d_step { !alive && !ended -> life++; alive = true }
	:: else -> break
	od;
	assert(RIGHT(0) && RIGHT(1) && RIGHT(2));	/* all relays see the worker, or none does */
	assert(!alive || LINKED == FIRST(RUNNING));	/* it has its sessions, and no others */
	assert(!alive || left != life)			/* a worker that lives has not left */
}
