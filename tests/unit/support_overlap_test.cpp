#include <doctest/doctest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "support/files.hpp"
#include "support/overlap.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

TEST_CASE("tenures one after the other do not overlap, whatever the order of their lines") {
  const TempDir dir;
  write_file(dir / "log", "start k 2 200\nend k 2 300\nstart k 1 100\nend k 1 200\n");
  CHECK(overlaps(dir / "log").empty());
  CHECK(most_at_once(dir / "log", "k") == 1);
  CHECK(tenures(dir / "log").at(0).pid == 1);
}

TEST_CASE("tenures of one key that share a moment are told, those of two keys are not") {
  const TempDir dir;
  write_file(dir / "log",
             "start a key 1 100\nstart other 3 150\nstart a key 2 199\nend a key 1 200\n"
             "end a key 2 250\nend other 3 400\n");
  const auto pairs = overlaps(dir / "log");
  REQUIRE(pairs.size() == 1);
  CHECK(pairs[0].first.key == "a key");
  CHECK(pairs[0].second.pid == 2);
  CHECK(most_at_once(dir / "log", "a key") == 2);
}

TEST_CASE("a tenure that was killed lasts to its last beat") {
  const TempDir dir;
  write_file(dir / "log", "start k 1 100\nbeat k 1 300\nstart k 2 200\nend k 2 250\n");
  CHECK(overlaps(dir / "log").size() == 1);
  CHECK_FALSE(tenures(dir / "log").at(0).ended);
}

TEST_CASE("a line that is none of the log's is an error") {
  const TempDir dir;
  write_file(dir / "log", "start k 1\n");
  CHECK_THROWS_AS(tenures(dir / "log"), Error);
  write_file(dir / "log", "end k 1 100\n");
  CHECK_THROWS_AS(tenures(dir / "log"), Error);
}

TEST_CASE("a shell and the test itself write to the same log") {
  const TempDir dir;
  const std::string script = "\"$STAMP\" log start k; \"$STAMP\" log end k; \"$STAMP\"";
  ProcessOptions options;
  options.cwd = dir.path();
  options.env = {{"STAMP", stamp_path()}};
  stamp(dir / "log", "start", "k");
  const auto shell = run({"sh", "-c", script}, options);
  stamp(dir / "log", "end", "k");
  const auto all = tenures(dir / "log");
  REQUIRE(all.size() == 2);
  CHECK(all[0].pid == getpid());
  CHECK(all[1].end_ns < std::stoll(shell.out));
  CHECK(overlaps(dir / "log").size() == 1);
}

}  // namespace dlock::test
