# Shared functions of the scenarios with several hosts. Sourced by bash. A host is a network namespace
# with its own name, and a cable to the world, which is another one.

skip() {
  echo "skipped: $*"
  exit 77
}

fail() {
  echo "failed: $*"
  tail -n 5 "$dir"/*.err
  exit 1
}

# in_a_world_of_its_own SECONDS COMMAND...: runs it in a PID namespace that ends with it, with an empty
# directory $dir that is removed after it.
in_a_world_of_its_own() {
  local seconds=$1 status=0 apart=(unshare --mount --pid --fork --kill-child --mount-proc --net --uts)
  shift
  ((EUID == 0)) || apart+=(--map-root-user)
  "${apart[@]}" unshare --net ip link set lo up 2>/dev/null || skip "no right to make namespaces"
  dir=$(mktemp -d)
  export dir DLOCK_CONFIG=/dev/null
  timeout -s KILL "$seconds" "${apart[@]}" "$@" || status=$?
  rm -rf "$dir"
  return "$status"
}

# need TOOL...
need() {
  local tool
  for tool in ip unshare "$@"; do type -P "$tool" >/dev/null || skip "there is no $tool"; done
}

# connect NAME NUMBER PID: a cable from the world to eth0 of the host of that process.
connect() {
  until [[ $(readlink "/proc/$3/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.01; done
  ip link add "$1" type veth peer name eth0 netns "$3" && ip link set "$1" up &&
    ip address add "10.77.$2.1/24" dev "$1"
}

# become_host NAME NUMBER: sets the name of the host, and waits for its cable.
become_host() {
  hostname "$1" 2>/dev/null || echo "$1" >/proc/sys/kernel/hostname
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
  ip link set lo up && ip address add "10.77.$2.2/24" dev eth0 && ip link set eth0 up &&
    ip route add default via "10.77.$2.1"
}
