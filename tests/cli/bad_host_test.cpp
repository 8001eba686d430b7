#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

void check_refused(const std::string& url, const std::string& says) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "-k", "a", "--", "echo", "ran"},
        {"acquire", "a", "-t", "5s"},
        {"inspect"}}) {
    const auto result = dlock(words, {.env = {{"DLOCK_SERVER", url}}});
    CAPTURE(words[0]);
    check_message(result, 71, says);
  }
}

TEST_CASE("bad host: the directory of local must be there and be one") {
  const TempDir dir;
  write_file(dir / "file", "");
  check_refused("local:" + (dir / "missing"), dir / "missing");
  check_refused("local:" + (dir / "file"), dir / "file");
  check_refused("local:" + (dir / "file/below"), dir / "file/below");
}

TEST_CASE("bad host: a directory that this user may not write") {
  if (skip_if(geteuid() != 0, "needs root to become another user")) return;
  const TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  const std::string program = dir / "dlock";
  const std::string line = "cp \"$D\" " + program + " && chmod 755 " + program +
                           " && cd / && setpriv --reuid 65534 --clear-groups " + program +
                           " run --server local:" + dir.path() + " -k a -- echo ran";
  check_message(run({"sh", "-c", line}, clean({.env = {{"D", dlock_path()}, {"HOME", "/"}}})), 71,
                dir.path());
}

TEST_CASE("bad host: a full disk") {
  if (skip_if(geteuid() != 0, "needs root to mount a small file system")) return;
  const TempDir dir;
  const ProcessOptions options{.env = {{"D", dlock_path()}, {"DISK", dir.path()}}};
  const std::string line =
      R"(mount -t tmpfs -o size=16k none "$DISK" || exit 99
         "$D" run --server local:"$DISK" -k before -- true || exit 98
         cat /dev/zero >"$DISK/filler" 2>/dev/null
         "$D" run --server local:"$DISK" -k a -- echo ran; echo "run $?"
         "$D" acquire --server local:"$DISK" a -t 5s; echo "acquire $?"
         rm "$DISK/filler"
         "$D" run --server local:"$DISK" -k a -- echo again; echo "run $?")";
  const auto result = run({"unshare", "-m", "sh", "-c", line}, clean(options));
  if (skip_if(result.exit_code == 99 || holds(result.err, "unshare"), "no mount here")) return;
  CAPTURE(result.err);
  CHECK(result.out == "run 71\nacquire 71\nagain\nrun 0\n");
  CHECK(count_lines(result.err) == 2);
  CHECK(holds(result.err, dir.path()));
  CHECK(holds(result.err, "No space left on device"));
}

TEST_CASE("bad host: entries of the directory that are links are not followed") {
  const Place place(Engine::local);
  const std::string locks = place.url().substr(6);
  CHECK(place.dlock({"run", "-k", "a", "--", "true"}).exit_code == 0);
  write_file(place.dir() / "victim", "precious");
  const auto linked =
      place.shell("cd " + locks +
                  " && for f in $(ls -A); do rm -rf \"$f\"; ln -s \"$OLDPWD/victim\" \"$f\"; "
                  "done; ls -A | wc -l");
  CHECK(linked.out != "0\n");
  const auto result = place.dlock({"run", "-k", "a", "--", "echo", "ran"});
  CAPTURE(result.err);
  CHECK(read_file(place.dir() / "victim") == "precious");
  if (result.exit_code != 0) {
    check_message(result, 71);
  }
}

/// The result of dlock for a user that may have only one process, after running `before` without
/// that limit; nothing without the right to become such a user.
std::optional<Result> with_one_process(const std::string& before, const std::string& dlock) {
  if (skip_if(geteuid() != 0, "needs root to become a user without processes")) return std::nullopt;
  const TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 01777) == 0);
  const std::string line = R"(
      cp "$D" "$DIR/dlock" && chmod 755 "$DIR/dlock" && mkdir -m 1777 "$DIR/locks" && cd / || exit
      as_user() { setpriv --reuid $USER_ID --clear-groups "$DIR/dlock" "$@" --server "local:$DIR/locks"; }
      )" + before + R"(
      ulimit -u 1
      exec setpriv --reuid $USER_ID --clear-groups env DLOCK_SERVER="local:$DIR/locks" "$DIR/dlock" )" +
                           dlock;
  ProcessOptions options{.env = {{"D", dlock_path()}, {"DIR", dir.path()}, {"HOME", "/"}}};
  // Each test process uses a user of its own, as the limit counts all processes of a user.
  options.env["USER_ID"] = std::to_string(30'000 + getpid() % 20'000);
  return run({"bash", "-c", line}, clean(options));
}

TEST_CASE("bad host: no process can be made") {
  const auto result = with_one_process("", "run -k a -- echo ran");
  if (!result) return;
  check_message(*result, 71);
}

TEST_CASE("bad host: no thread can be made to wait for the file of a lock that is in use") {
  const auto result = with_one_process(
      R"(as_user acquire -q -k a -t 1m >/dev/null; exec 9<>"$DIR/locks/a.dlock"; flock 9)",
      "inspect a");
  if (!result) return;
  CHECK(result->exit_code == 71);
  CHECK(result->out == "");
  CHECK(result->err == "dlock: a: cannot start a thread: Resource temporarily unavailable\n");
}

TEST_CASE("bad host: --wait-tree where /proc shows no processes is refused before the wait") {
  const Place place(Engine::local);
  const auto result = place.shell(R"(
      unshare --mount true 2>/dev/null || exit 0
      exec unshare --mount sh -c '
        mount -t tmpfs none /proc && exec "$D" run --wait-tree -k a echo ran')");
  if (result.exit_code == 0) return;
  check_message(result, 71);
}

}  // namespace
}  // namespace dlock::test
