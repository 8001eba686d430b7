#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "cli/doctor_report.hpp"
#include "support/files.hpp"
#include "support/sentinels.hpp"

namespace dlock::test {
namespace {

SentinelOptions sound_fleet() {
  SentinelOptions options;
  options.replicas = 1;
  options.server_config = {"appendonly yes", "appendfsync always", "min-replicas-to-write 1"};
  return options;
}

TEST_CASE("doctor: sentinels and their master, sound and not") {
  Sentinels fleet(sound_fleet());
  const Report sound = doctor(fleet.url(), {"--replicas", "1"});
  CHECK(sound.result.exit_code == 0);
  CHECK(sound.result.out.starts_with(fleet.url() + "\n"));
  for (std::size_t i = 0; i < 3; ++i) {
    const int port = fleet.sentinel(i).port();
    CHECK(sound.says("sentinel", "ok",
                     "127.0.0.1:" + std::to_string(port) + ": names 127.0.0.1:" +
                         std::to_string(fleet.master().port()) + ", quorum 2"));
  }
  CHECK(sound.says("quorum", "ok", "3 sentinels in all, and they agree"));
  CHECK(sound.says("failover", "ok", "700ms of silence"));
  CHECK(sound.says("replication", "ok", "1 replica"));
  CHECK(sound.says("label", "ok", "best effort: replication is asynchronous"));
  CHECK(fleet.master().command({"DBSIZE"}).number == 0);
  CHECK(doctor(fleet.url(), {"-t", "1s"}).says("failover", "warning", "or a longer -t"));

  const std::string one = "127.0.0.1:" + std::to_string(fleet.sentinel(0).port());
  CHECK(doctor("redis+sentinel://" + one + "/others").says("sentinel", "error", "no master of"));
  CHECK(doctor("redis://" + one).says("role", "error", "redis+sentinel://" + one + "/NAME"));

  // The least rights on both kinds of server.
  const TempDir dir;
  write_file(dir / "password", "PASSWORD");
  REQUIRE(chmod((dir / "password").c_str(), 0600) == 0);
  const std::string url =
      "redis+sentinel://dlock@" + fleet.url().substr(std::string("redis+sentinel://").size());
  const Words login{"--sentinel-user", "dlock", "--sentinel-password-file", dir / "password"};
  Words with_acl = login;
  with_acl.emplace_back("--acl");
  const std::string lines = doctor(url, with_acl, "PASSWORD").result.out;
  const auto end = lines.find('\n');
  obey(fleet.master(), lines.substr(0, end));
  for (std::size_t i = 0; i < 3; ++i) obey(fleet.sentinel(i), lines.substr(end + 1));
  const Report least = doctor(url, login, "PASSWORD");
  CHECK(least.result.exit_code == 0);
  CHECK(least.says("failover", "ok", "not told (SENTINEL MASTER: NOPERM)"));
  CHECK(least.says("lock", "ok", "handed over"));
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", url},
                 {"DLOCK_PASSWORD", "PASSWORD"},
                 {"DLOCK_SENTINEL_USER", "dlock"},
                 {"DLOCK_SENTINEL_PASSWORD_FILE", dir / "password"}};
  const Result taken = dlock({"run", "-k", "a", "--", "true"}, options);
  CHECK(taken.err == "");
  CHECK(taken.exit_code == 0);

  fleet.master().command({"CONFIG", "SET", "min-replicas-to-write", "0"});
  fleet.sentinel(0).kill_hard();
  const Report worse = doctor(fleet.url());
  CHECK(worse.result.exit_code == 1);
  CHECK(worse.says("sentinel", "warning", one + ": cannot connect"));
  CHECK(worse.says("replication", "warning", "-> CONFIG SET min-replicas-to-write 1"));
  fleet.sentinel(1).kill_hard();
  fleet.sentinel(2).kill_hard();
  const Report none = doctor(fleet.url());
  CHECK(none.result.exit_code == 2);
  CHECK(none.says("verdict", "error", "3 errors"));
}

}  // namespace
}  // namespace dlock::test
