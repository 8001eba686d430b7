/* The lock and its fence over N independent servers, decided by a majority: an exclusive lock, two
 * clients that acquire it again and again, three nodes. `check`, beside this file, has spin examine
 * every state of it, and of weakened variants, each of which must fail:
 *
 *   check              all variants, as a table
 *   check VARIANT      the shortest story in which it fails, step by step
 *
 * A tenure is one hold of a client over all nodes. The properties are the assertions in had():
 *   (1) no two winners have the same fence;
 *   (2) a winner's fence is larger than that of each winner that there was before any node granted
 *       this tenure. So fences order tenures that do not overlap, and distinguish all others.
 * Both hold whatever clocks and leases do. With -DCLOCKS these keep their bound (see there), and
 * then more is claimed:
 *   (3) each winner's fence is larger than that of the winner before it;
 *   (4) there is never a second holder.
 * Without the bound (3) and (4) fail: a client that was stopped between its answers and their use
 * believes that it has won, after a later winner. Its fence is smaller then, so it is recognized.
 *
 * What the model contains
 *   Messages are lost, late, reordered and doubled without limit: a node may execute what a client
 *   has sent in its present tenure now, later, never, and again. A client does not use a reply that
 *   is lost.
 *   A hold may end at any moment: its lease has expired, by any clock, or a release has arrived.
 *   A client may give up at any moment: it has released, or crashed. Its next tenure has a token of
 *   its own.
 *   p, the client's clock, limited by the node's: max(F + 1, p) may be any fence above a node's
 *   last, and another one at each node.
 *   -DFORGET: a node may restart without its memory, any number of times. The model assumes, and
 *   does not show, that the node's clock is past all fences by the time it grants again.
 *
 * What is bounded: the fences, 1 to FENCES, and so the tenures at one node.
 *
 * What the model leaves out: owners and limits (re-entrance, semaphores, readers), the queue (a
 * waiter that it admits is a client whose request was executed late), --min-hold, durations,
 * progress.
 *
 * What keeps it small and hides nothing
 *   A hold whose client has gone can only block the node, and end. So leave() ends it at once. Late
 *   requests of clients that have gone, and other clients that win nothing, can only raise F at a
 *   node that is free again afterwards: stranger(). The same goes for winners if only fences count,
 *   so then had() leaves at once.
 *   Clients are alike, and nodes are alike: sorted.pml.
 */
#define N 3 /* the loops over nodes are written out, for this N */
#ifdef MINORITY
#define Q (N / 2)
#else
#define Q (N / 2 + 1)
#endif
#ifndef FENCES
#define FENCES 4
#endif

/* Node.hold: the holder's token; with a restart guard, no token until the guard ends. */
#define NOBODY 0
#define token(c) ((c) + 1) /* of c's present tenure */
#define GUARDED 3

/* Client.phase */
#define ASKED 0   /* acquire sent to all nodes; none has granted it yet */
#define GRANTED 1 /* by at least one node */
#define RAISING 2 /* t is decided, but no majority stores it: raise sent */
#define HOLDING 3 /* acquired; used only with CLOCKS */

typedef Node {
  byte hold;
  byte F;        /* the last fence */
  byte answer[2] /* to each client: the fence stored with its hold; 0: none, or useless */
}

typedef Client {
  byte phase;
  byte t;      /* the token's fence; 0: undecided */
  byte before; /* for (2): the largest winning fence when the first node granted this tenure */
  byte since   /* for (1): a bit for each fence with which the other client has won since */
}

Node node[N];
Client client[2];
byte largest; /* winning fence so far */

byte f, kept, x; /* of one step; 0 between steps */

#define max(a, b) ((a) > (b) -> (a) : (b))
#define sum(a, c, v) (a(0, c, v) + a(1, c, v) + a(2, c, v))
#define stores(n, c, v) (node[n].answer[c] == (v))
#define within(n, c, v) (node[n].answer[c] != 0 && node[n].answer[c] <= (v))
#define name(c) ('A' + (c))

#include "sorted.pml"

inline leave_node(n, c) {
  node[n].answer[c] = 0;
  if
  :: node[n].hold == token(c) -> node[n].hold = NOBODY
  :: else
  fi
}

inline leave(c) {
  client[c].phase = ASKED; client[c].t = 0; client[c].before = 0; client[c].since = 0;
  leave_node(0, c); leave_node(1, c); leave_node(2, c)
}

inline had(c) {
  x = client[c].t;
#ifdef CLOCKS
  printf("%c has won, with the fence %d\n", name(c), x);
  assert(client[1 - c].phase != HOLDING); /* (4) */
  assert(x > largest);                    /* (3) */
  client[c].phase = HOLDING;
#else
  printf("%c has won, with the fence %d; its holds end\n", name(c), x);
  assert(!(client[c].since >> x & 1)); /* (1) */
  assert(x > client[c].before);        /* (2) */
  if
  :: client[1 - c].phase != ASKED -> client[1 - c].since = client[1 - c].since | 1 << x
  :: else
  fi;
  leave(c);
#endif
  largest = max(largest, x)
}

inline give_up(c) {
  d_step {
    client[c].phase != ASKED ->
    printf("%c leaves, or gives up, or has crashed: begins anew\n", name(c));
    leave(c);
    settle()
  }
}

#define is_free(n) (node[n].hold == NOBODY && node[n].F < FENCES)

/* Sets f to F = max(F + 1, p). INCR does without p. */
inline next_fence(n) {
  f = node[n].F + 1;
#ifndef INCR
  do
  :: f < FENCES -> f++
  :: break
  od
#endif
}

/* A repeated acquire gets the same answer while its hold lives, so this is only the grant. After
 * the hold's end it is granted afresh, and either reply may be the one that arrives. With CLOCKS
 * the former reply is void. */
inline acquire(c, n) {
  atomic {
    is_free(n) ->
    next_fence(n);
    if
    :: client[c].phase >= RAISING -> kept = 1
    :: client[c].phase < RAISING && node[n].answer[c] != 0 -> kept = 1
    :: client[c].phase < RAISING
    fi;
    d_step {
      printf("node %d grants %c, its fence is %d\n", n + 1, name(c), f);
      node[n].hold = token(c);
      node[n].F = f;
      if
      :: !kept -> node[n].answer[c] = f
      :: else
      fi;
      if
      :: client[c].phase == ASKED ->
        client[c].phase = GRANTED;
#ifndef CLOCKS
        client[c].before = largest
#endif
      :: else
      fi;
      settle()
    }
  }
}

/* A whole tenure of a client that will not win. */
inline stranger(n) {
  atomic {
    is_free(n) ->
    next_fence(n);
    d_step {
      printf("node %d grants somebody else and is free again, its fence is %d\n", n + 1, f);
      node[n].F = f;
      settle()
    }
  }
}

/* Sets F = t, but only if this hold still lives and F <= t. */
#ifdef UNCOND
#define lives(c, n) true
#else
#define lives(c, n) (node[n].hold == token(c))
#endif
#ifdef NOORDER
#define in_order(c, n) true
#else
#define in_order(c, n) (node[n].F <= client[c].t)
#endif
inline raise(c, n) {
  d_step {
    client[c].phase == RAISING && lives(c, n) && in_order(c, n) ->
    printf("node %d raises its fence from %d to %d for %c\n", n + 1, node[n].F, client[c].t,
      name(c));
    node[n].F = client[c].t;
    node[n].answer[c] = client[c].t;
    settle()
  }
}

/* A winner's renewal that finds no hold rejoins: F = max(F, t), no increment. */
#ifdef JOINSETS
#define joined(n, t) (t)
#else
#define joined(n, t) max(node[n].F, t)
#endif
inline join(c, n) {
  d_step {
    client[c].phase == HOLDING && node[n].hold == NOBODY ->
    printf("node %d is re-joined by %c\n", n + 1, name(c));
    node[n].hold = token(c);
    node[n].F = joined(n, client[c].t);
    settle()
  }
}

/* A late renewal: the winner has left, and the hold is a stranger's. */
inline join_late(n) {
  d_step {
    node[n].hold == NOBODY && largest != 0 ->
    printf("node %d is re-joined by a late renewal of the winner of %d; that hold ends\n", n + 1,
      largest);
    node[n].F = joined(n, largest);
    settle()
  }
}

inline keep_only(n, c, v) {
  if
  :: node[n].answer[c] != v -> node[n].answer[c] = 0
  :: else
  fi
}

/* t is the largest answer of some granting majority, and comes from node n. From then on the
 * answers are of the nodes known to store t. */
inline decide(c, n) {
  d_step {
    client[c].phase == GRANTED && node[n].answer[c] != 0 &&
      sum(within, c, node[n].answer[c]) >= Q ->
    x = node[n].answer[c];
    client[c].t = x;
    keep_only(0, c, x); keep_only(1, c, x); keep_only(2, c, x);
#if defined(NORAISE) || defined(INCR)
    had(c);
#else
    if
    :: sum(stores, c, x) >= Q -> had(c)
    :: else ->
      printf("%c raises its fence to %d\n", name(c), x);
      client[c].phase = RAISING
    fi;
#endif
    settle()
  }
}

inline confirm(c) {
  d_step {
    client[c].phase == RAISING && sum(stores, c, client[c].t) >= Q ->
    had(c);
    settle()
  }
}

/* CLOCKS: a client measures its deadline from before it asked, and no node ends a lease before the
 * deadline that rests on it. So before the win, a lease that ends voids the answer (LATE does
 * without). After it, while a client is HOLDING, its answers are of the nodes that found its hold
 * at the last renewal, and the hold does not end there. Other nodes may lose it. */
#ifdef CLOCKS
#define rests_on(c, n) (client[c].phase == HOLDING && node[n].answer[c] != 0)
#else
#define rests_on(c, n) false
#endif

inline expire(c, n) {
  d_step {
    node[n].hold == token(c) && !rests_on(c, n) ->
    printf("node %d: the hold of %c ends\n", n + 1, name(c));
    node[n].hold = NOBODY;
#if defined(CLOCKS) && !defined(LATE)
    node[n].answer[c] = 0;
#endif
    settle()
  }
}

/* A renewal finds the hold at a node that did not count before: rejoined, or without an answer. */
inline renewed(c, n) {
  d_step {
    client[c].phase == HOLDING && node[n].hold == token(c) && node[n].answer[c] == 0 ->
    printf("%c is renewed at node %d\n", name(c), n + 1);
    node[n].answer[c] = client[c].t;
    settle()
  }
}

/* A renewal has a majority without this node, which lost the hold or did not answer. */
inline not_renewed(c, n) {
  d_step {
    rests_on(c, n) && sum(stores, c, client[c].t) > Q ->
    printf("%c is renewed without node %d\n", name(c), n + 1);
    node[n].answer[c] = 0;
    settle()
  }
}

/* After a restart the clock is past every fence there was, and the first grant raises F to it. The
 * restart guard, which (4) needs and (1) and (2) do not, gives the node no vote until every lease
 * that it may have granted has expired: deadlines that rest on it, and answers that could still
 * win. */
#ifdef NOFLOOR
#define restarted_fence 0
#else
#define restarted_fence max(max(node[0].F, node[1].F), node[2].F)
#endif
#if defined(CLOCKS) && !defined(NOGUARD)
#define restarted_hold(n) (node[n].answer[0] + node[n].answer[1] > 0 -> GUARDED : NOBODY)
#else
#define restarted_hold(n) NOBODY
#endif

inline forget(n) {
  d_step {
    node[n].F != 0 ->
    printf("node %d restarts without its memory\n", n + 1);
    node[n].hold = restarted_hold(n);
    node[n].F = restarted_fence;
    settle()
  }
}

inline vote_again(n) {
  d_step {
    node[n].hold == GUARDED && !rests_on(0, n) && !rests_on(1, n) ->
    node[n].hold = NOBODY;
    node[n].answer[0] = 0;
    node[n].answer[1] = 0;
    settle()
  }
}

#define by_nodes(step) step(0) :: step(1) :: step(2)
#define by_clients(step) step(0) :: step(1)
#define by_both(step) \
  step(0, 0) :: step(0, 1) :: step(0, 2) :: step(1, 0) :: step(1, 1) :: step(1, 2)

active proctype world() {
end:
  do
  :: by_both(acquire)
  :: by_both(raise)
  :: by_both(expire)
  :: by_both(decide)
  :: by_clients(confirm)
  :: by_clients(give_up)
  :: by_nodes(stranger)
  :: by_nodes(join_late)
#ifdef CLOCKS
  :: by_both(join)
  :: by_both(renewed)
  :: by_both(not_renewed)
#endif
#ifdef FORGET
  :: by_nodes(forget)
#ifdef CLOCKS
  :: by_nodes(vote_again)
#endif
#endif
  od
}
