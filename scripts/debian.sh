# Creates a bare Debian in its own directory. Sourced after lib.sh by the scripts that need one.

# contained COMMAND...: runs it in its own namespaces. Its mounts and processes end with it, and it
# ends with this script, in any case.
contained() {
  (exec unshare --mount --pid --fork --kill-child --mount-proc "$@" </dev/null) &
  child=$!
  wait "$child"
}

# inside COMMAND...: runs it in the new Debian, with /proc, /dev and /sys.
inside() {
  contained bash -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
      exec chroot "$0" "$@"' "$place" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 TERM="${TERM:-dumb}" ${http_proxy:+http_proxy="$http_proxy"} "$@"
}

remove_debian() {
  if kill -KILL "${child:-}" 2>/dev/null; then wait "$child"; fi
  # A process that was just killed may still be writing.
  for _ in 1 2 3; do
    rm -rf --one-file-system "$place" && return
    sleep 1
  done
}

install_debian_tools() {
  : >"$log"
  install_missing debootstrap git
}

# install_inside PACKAGE...: installs them in the new Debian.
install_inside() {
  inside env DEBIAN_FRONTEND=noninteractive sh -ec 'apt-get update
    apt-get -y --no-install-recommends install "$@"' sh "$@" >>"$log" 2>&1 ||
    { show_errors; fail "apt-get in the new Debian: see $log"; }
}

# emulate_arm64: has the kernel run programs for arm64 by qemu, in every directory tree. With systemd,
# Debian's package has done so.
emulate_arm64() {
  local formats=/proc/sys/fs/binfmt_misc
  install_missing qemu-user-static
  [[ -e $formats/register ]] || mount -t binfmt_misc none "$formats" || return
  [[ -e $formats/qemu-aarch64 ]] || cat "${sign_of[qemu-user-static]}" >"$formats/register"
}

# make_debian RELEASE [ARCHITECTURE]: creates it in $place, which is removed with this script.
make_debian() {
  ((EUID == 0)) || fail "making a Debian needs root: sudo $0 $1"
  one_at_a_time install_debian_tools || exit
  place=$(mktemp -d /var/tmp/dlock-"$1".XXXXXX) || exit 71
  trap remove_debian EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  chmod 755 "$place"
  say "$1: debootstrap"
  contained debootstrap ${2:+--arch="$2"} --variant=minbase "$1" "$place" http://deb.debian.org/debian \
    >>"$log" 2>&1 || { show_errors; fail "debootstrap failed: see $log"; }
}
