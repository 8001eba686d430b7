/* settle() ends each step of fence.pml. Clients are alike, and nodes are alike: it sorts them, so
 * that only one is left of the states that differ only in names. With -DNAMED nothing is renamed,
 * so that a story can be followed. */
#define exchange(a, b) x = a; a = b; b = x
#define client_key(c) \
  (((client[c].phase * 16 + client[c].t) * 16 + client[c].before) * 256 + client[c].since)
#define node_key(n) \
  (((node[n].F * 4 + node[n].hold) * 16 + node[n].answer[0]) * 16 + node[n].answer[1])

inline sort_nodes(a, b) {
  if
  :: node_key(a) > node_key(b) ->
    exchange(node[a].hold, node[b].hold);
    exchange(node[a].F, node[b].F);
    exchange(node[a].answer[0], node[b].answer[0]);
    exchange(node[a].answer[1], node[b].answer[1])
  :: else
  fi
}

inline rename_clients_at(n) {
  exchange(node[n].answer[0], node[n].answer[1]);
  if
  :: node[n].hold == token(0) -> node[n].hold = token(1)
  :: node[n].hold == token(1) -> node[n].hold = token(0)
  :: else
  fi
}

inline settle() {
#ifndef NAMED
  if
  :: client_key(0) > client_key(1) ->
    exchange(client[0].phase, client[1].phase);
    exchange(client[0].t, client[1].t);
    exchange(client[0].before, client[1].before);
    exchange(client[0].since, client[1].since);
    rename_clients_at(0); rename_clients_at(1); rename_clients_at(2)
  :: else
  fi;
  sort_nodes(0, 1); sort_nodes(1, 2); sort_nodes(0, 1);
#endif
  f = 0; kept = 0; x = 0
}
