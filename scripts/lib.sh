# Shared functions of the scripts. Sourced by bash with `root` set to the top of the source tree.
# Everything here writes only to stderr, and reads nothing from stdin.

build_packages=(g++ cmake ninja-build libhiredis-dev libssl-dev libpq-dev libmariadb-dev libcurl4-openssl-dev
  libzookeeper-st-dev nlohmann-json3-dev)
# Beside them, on another processor, for a build for arm64 (scripts/cmake/arm64.cmake).
arm64_packages=(g++-aarch64-linux-gnu libc6-dev:arm64 libstdc++6:arm64 libhiredis-dev:arm64 libssl-dev:arm64
  libcurl4-openssl-dev:arm64)
test_packages=(doctest-dev postgresql pgbouncer mariadb-server etcd-server zookeeper memcached redis-server redis-tools openssl
  strace iproute2 nano less spin python3 python3-yaml systemd mandoc bash-completion zsh fish)

# The packages that start a service when installed, and its name.
declare -A service_of=([redis-server]=redis-server [postgresql]=postgresql [pgbouncer]=pgbouncer
  [mariadb-server]=mariadb [etcd-server]=etcd [memcached]=memcached)

# The sign of an installed package: a command, a header, or a file. Asking dpkg would cost a process
# each and would not see software installed by other means.
declare -A sign_of=(
  [clang-14]=clang++-14 [llvm-14]=llvm-cov-14
  [libclang-rt-14-dev]=/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.fuzzer-x86_64.a
  [ninja-build]=ninja [redis-tools]=redis-cli [iproute2]=ip
  [libhiredis-dev]=hiredis/hiredis.h [libssl-dev]=openssl/ssl.h [libpq-dev]=postgresql/libpq-fe.h
  [libmariadb-dev]=mariadb/mysql.h [libcurl4-openssl-dev]=curl-config [postgresql]=/usr/lib/postgresql
  [pgbouncer]=/usr/sbin/pgbouncer [mariadb-server]=/usr/sbin/mariadbd
  [nlohmann-json3-dev]=nlohmann/json.hpp [doctest-dev]=doctest/doctest.h
  [etcd-server]=etcd [etcd-client]=etcdctl
  [libzookeeper-st-dev]=zookeeper/zookeeper.h [zookeeper]=/usr/share/java/zookeeper.jar
  [bash-completion]=/usr/share/bash-completion/bash_completion
  [g++-aarch64-linux-gnu]=aarch64-linux-gnu-g++ [libc6-dev:arm64]=/usr/lib/aarch64-linux-gnu/libc.a
  [libstdc++6:arm64]=/usr/lib/aarch64-linux-gnu/libstdc++.so.6
  [libhiredis-dev:arm64]=/usr/lib/aarch64-linux-gnu/libhiredis.a
  [libssl-dev:arm64]=/usr/lib/aarch64-linux-gnu/libssl.a
  [libcurl4-openssl-dev:arm64]=/usr/include/aarch64-linux-gnu/curl/curl.h
  [qemu-user-static]=/usr/lib/binfmt.d/qemu-aarch64.conf
  [systemd]=systemd-analyze [python3-yaml]=/usr/lib/python3/dist-packages/yaml
  [binutils]=readelf [dpkg-dev]=dpkg-shlibdeps
  [python3-kazoo]=/usr/lib/python3/dist-packages/kazoo
  [python3-redis]=/usr/lib/python3/dist-packages/redis
)

log=$root/build/setup.log
policy=/usr/sbin/policy-rc.d
as_root=()
((EUID == 0)) || as_root=(sudo)

say() { printf 'dlock: %s\n' "$*" >&2; }

fail() {
  say "$@"
  exit 71
}

# The errors that the log states plainly.
show_errors() { grep -E '^E: |error: |CMake Error' "$log" | head -n 5 >&2; }

# is_there PACKAGE
is_there() {
  local sign=${sign_of[$1]:-$1}
  case $sign in
    /*) [[ -e $sign ]] ;;
    *.h | *.hpp) [[ -e /usr/include/$sign || -e /usr/local/include/$sign ]] ;;
    *) type -P "$sign" >/dev/null ;;
  esac
}

# True if the release binary exists and no source is newer than the start of its build. It starts no
# process, as every run of scripts/dlock calls it.
is_built() {
  local stamp=$root/build/release/.built file
  [[ -x $root/build/release/dlock && -e $stamp ]] || return 1
  for file in "$root"/src{,/*,/*/*,/*/*/*} "$root"/scripts{,/*,/*/*} \
    "$root"/CMakeLists.txt "$root"/CMakePresets.json; do
    if [[ $file -nt $stamp ]]; then return 1; fi
  done
}

# Copies stdin to the log and reports the progress of apt or ninja on stderr: on a terminal in one
# line that is erased at the end.
show_progress() {
  local line total='?' count=0 step='' told=$SECONDS every=3 live=''
  if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then live=yes every=1; fi
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    if [[ $line =~ ^\[([0-9]+/[0-9]+)\]\ (Building|Linking) ]]; then
      step="building ${BASH_REMATCH[1]}"
    elif [[ $line =~ ,\ ([0-9]+)\ newly\ installed ]]; then
      total=${BASH_REMATCH[1]}
    elif [[ $line =~ ^Get:([0-9]+)\  ]]; then
      step="fetching ${BASH_REMATCH[1]}/$total"
    elif [[ $line == 'Unpacking '* ]]; then
      count=$((count + 1))
      step="unpacking $count/$total"
    elif [[ $line == 'Setting up '* ]]; then
      [[ $step == 'setting up '* ]] || count=0
      count=$((count + 1))
      step="setting up $count/$total"
    fi
    if [[ -n $step ]] && ((SECONDS - told >= every)); then
      if [[ -n $live ]]; then printf '\r\e[Kdlock: %s' "$step" >&2; else say "$step"; fi
      told=$SECONDS
    fi
  done
  if [[ -n $live ]]; then printf '\r\e[K' >&2; fi
}

# logged COMMAND...: runs it with its output in the log; returns its exit code.
logged() {
  printf '+ %s\n' "$*" >>"$log"
  "$@" </dev/null 2>&1 | show_progress
  return "${PIPESTATUS[0]}"
}

apt_get() {
  # Waits for other users of apt, such as the upgrades a new machine makes on its own.
  logged "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -y \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
}

# install_missing PACKAGE...: installs those that are missing.
install_missing() {
  local package missing=()
  for package in "$@"; do
    is_there "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ! type -P apt-get >/dev/null; then
    fail "these are missing, and there is no apt-get to install them: ${missing[*]}"
  elif ((EUID != 0)) && ! type -P sudo >/dev/null; then
    fail "an administrator has to install these first: apt-get install ${missing[*]}"
  fi
  say "installing ${#missing[@]} packages (first run only): ${missing[*]}"
  # A machine may have no package lists yet, or old ones, or an interrupted installation.
  without_service apt_get install "${missing[@]}" ||
    { say "fetching the lists of packages" && logged "${as_root[@]}" dpkg --configure -a &&
      apt_get update && without_service apt_get install "${missing[@]}"; } ||
    { show_errors; fail "could not install ${missing[*]}: see $log"; }
}

# install_arm64: installs what a build for arm64 needs besides on another processor.
install_arm64() {
  dpkg --print-foreign-architectures | grep -qx arm64 ||
    logged "${as_root[@]}" dpkg --add-architecture arm64
  install_missing "${arm64_packages[@]}"
}

# without_service apt_get install PACKAGE...: keeps the servers that are installed for the tests
# from becoming services of this machine, now and after the next boot.
without_service() {
  local status=0 package services=()
  for package in "$@"; do services+=(${service_of[$package]:-}); done
  if ((${#services[@]} == 0)); then
    "$@"
    return
  fi
  if [[ ! -e $policy ]]; then
    trap '"${as_root[@]}" rm -f "$policy"; disable_services "${services[@]}"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
  fi
  "$@" || status=$?
  disable_services "${services[@]}" || status=$?
  if [[ -n $(trap -p EXIT) ]]; then
    "${as_root[@]}" rm -f "$policy"
    trap - EXIT
  fi
  return "$status"
}

# disable_services NAME...: disables those that exist, even after an interrupted installation.
disable_services() {
  local service status=0
  for service in "$@"; do
    [[ ! -e /etc/init.d/$service ]] || logged "${as_root[@]}" update-rc.d "$service" disable || status=$?
  done
  return "$status"
}

# job_count: the number of parallel compilers, one for each processor and for each GB of free
# memory.
job_count() {
  local jobs name kb _
  jobs=$(nproc 2>/dev/null) || jobs=2
  while read -r name kb _; do
    if [[ $name == MemAvailable: ]] && ((kb / 1000000 < jobs)); then jobs=$((kb / 1000000)); fi
  done </proc/meminfo
  echo $((jobs < 1 ? 1 : jobs))
}

# build_preset NAME [ninja arguments]: configures and builds it.
build_preset() {
  local preset=$1
  local -x NINJA_STATUS='[%f/%t] ' LC_ALL=C
  shift
  # A copied source tree has the cache of another path: then configure from scratch.
  logged cmake -S "$root" --preset "$preset" || logged cmake -S "$root" --preset "$preset" --fresh &&
    logged cmake --build "$root/build/$preset" -j "$(job_count)" -- "$@"
}

# build_release: builds the binary that scripts/dlock becomes.
build_release() {
  local began=$SECONDS
  install_missing "${build_packages[@]}"
  say "building (first run, or sources have changed)"
  mkdir -p "$root/build/release" && : >"$root/build/release/.started" &&
    build_preset release &&
    mv "$root/build/release/.started" "$root/build/release/.built" ||
    { show_errors; fail "the build failed: see $log"; }
  say "ready after $((SECONDS - began)) s"
}

# one_at_a_time COMMAND...: only one of these runs at a time in this source tree. COMMAND, and
# services that apt may start, do not inherit the lock.
one_at_a_time() (
  umask 022
  { mkdir -p "$root/build" && exec {lock}>"$root/build/.lock" && : >>"$log"; } 2>/dev/null ||
    fail "cannot write $root/build, and a build is due: run this once as the owner of it"
  if ! flock -n "$lock"; then
    say "another build is running: waiting for it"
    flock "$lock" || fail "cannot lock $root/build/.lock"
  fi
  ("$@") {lock}>&- </dev/null >&2
)
