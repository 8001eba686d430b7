#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.hpp"
#include "cli/place.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

/// Reads a pipe as the journal does; JOURNAL_STREAM identifies it.
class Journal {
 public:
  Journal() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    reader_ = Fd(ends[0]);
    writer_ = Fd(ends[1]);
    struct stat status {};
    REQUIRE(fstat(ends[1], &status) == 0);
    name_ = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
  }

  ProcessOptions options(const std::string& name) const {
    return {.env = {{"JOURNAL_STREAM", name}}, .stderr_fd = writer_.get()};
  }
  ProcessOptions options() const { return options(name_); }

  /// All text, once no writer is left.
  std::string text() {
    writer_.reset();
    std::string text;
    char part[4096];
    for (ssize_t got = 1; got > 0;) {
      got = read(reader_.get(), part, sizeof part);
      if (got > 0) text.append(part, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  Fd reader_;
  Fd writer_;
  std::string name_;
};

TEST_CASE(
    "systemd: the journal gets a priority before each message, and the command's as they are") {
  const Place place(Engine::local);
  const auto holder = place.hold("a");
  Journal journal;
  place.dlock({"run", "-k", "a", "-n", "--", "true"}, journal.options());
  place.dlock({"run", "-k", "b", "-v", "--metrics", "/dev/null", "--max-hold", "3", "--", "sh",
               "-c", "echo its own >&2; exec sleep 60"},
              journal.options());
  place.dlock({"run", "--no-such-flag"}, journal.options());
  const std::string text = journal.text();
  CHECK(text.starts_with("<6>dlock: a is held by "));
  CHECK(holds(text, "\n<7>dlock: holding b "));
  CHECK(holds(text, "\nits own\n"));
  CHECK(holds(text, "\n<3>dlock: b: COMMAND ran longer"));
  CHECK(holds(text, "\n<4>dlock: warning: cannot write --metrics"));
  CHECK(holds(text, "\n<3>dlock: unknown flag"));
  for (const std::string& line : lines_of(text)) {
    CAPTURE(line);
    CHECK((line == "its own" || line.find(">dlock: ") == 2));
  }
}

TEST_CASE("systemd: a JOURNAL_STREAM that is not stderr changes nothing") {
  const Place place(Engine::local);
  for (const char* name : {"", "1:2", "x"}) {
    Journal journal;
    place.dlock({"run", "--no-such-flag"}, journal.options(name));
    CHECK(journal.text().starts_with("dlock: "));
  }
}

TEST_CASE("systemd: sockets, and the variables that name them, reach the command") {
  const Place place(Engine::local);
  const auto result = place.shell(
      R"(exec 3<>one 4<>two; echo first >&3; echo second >&4
         export LISTEN_FDS=2 LISTEN_FDNAMES=a:b NOTIFY_SOCKET=@there
         LISTEN_PID=$$ exec "$D" run -k a -- sh -c '
           echo $LISTEN_FDS $LISTEN_FDNAMES $NOTIFY_SOCKET
           [ "$LISTEN_PID" = "$PPID" ] && echo names dlock
           cat /dev/fd/3 /dev/fd/4; [ -e /dev/fd/5 ] || echo no more')");
  CHECK(result.out == "2 a:b @there\nnames dlock\nfirst\nsecond\nno more\n");
  const auto in_shell = place.shell(
      R"(LISTEN_FDS=1 LISTEN_PID=$$ exec "$D" run -k a \
           -c 'export LISTEN_PID=$$; exec sh -c "[ \$LISTEN_PID = \$\$ ] && echo its own"' 3<&0)");
  CHECK(in_shell.out == "its own\n");
}

}  // namespace
}  // namespace dlock::test
