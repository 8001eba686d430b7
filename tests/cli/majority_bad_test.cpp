#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/doctor_report.hpp"
#include "support/eventually.hpp"
#include "support/fake_server.hpp"
#include "support/fleet.hpp"

namespace dlock::test {
namespace {

/// Runs dlock with only these servers.
Result with(const std::vector<std::string>& urls, const std::vector<std::string>& arguments) {
  return dlock(arguments, {.env = {{"DLOCK_SERVER", side_by_side(urls)}}});
}

Result run_with(const std::vector<std::string>& urls) {
  return with(urls, {"run", "-q", "-n", "-k", "k", "--", "sh", "-c", "echo $DLOCK_FENCE"});
}

Process job_with(const std::vector<std::string>& urls) {
  return start_dlock({"run", "-t", "9", "-k", "k", "--", "sleep", "60"},
                     {.env = {{"DLOCK_SERVER", side_by_side(urls)}}});
}

struct Told {
  bool told;  ///< false if the job ended first
  Result result;
};

/// Runs a job on these servers, and stops it once it prints `said`.
Told told_by_a_job_with(const std::vector<std::string>& urls, const std::string& said) {
  Process job = job_with(urls);
  const bool told = eventually([&] { return times(job.err(), said) > 0 || !job.running(); });
  if (job.running()) job.signal(SIGTERM);
  return {told, job.wait()};
}

/// Checks that a job on these servers works, and prints this warning once.
void is_warned_of(const std::vector<std::string>& urls, const std::string& said) {
  for (int tries = 1;; ++tries) {
    const Told job = told_by_a_job_with(urls, said);
    const Result& result = job.result;
    // On a busy machine, all servers may be as late as that one, but not again and again.
    if ((result.exit_code == 69 || result.exit_code == 64) && tries < 3) continue;
    CAPTURE(result.err);
    CHECK(job.told);
    // A short lease may be lost.
    CHECK((result.signal == SIGTERM || result.exit_code == 79));
    CHECK(times(result.err, said) == 1);
    return;
  }
}

void is_refused(const Result& result, const std::string& said) {
  CAPTURE(result.err);
  CHECK(result.exit_code == 64);
  CHECK(result.out == "");
  CHECK(times(result.err, said) == 1);
  CHECK(count_lines(result.err) == 1);
}

/// The same for the result of `attempt`. On a busy machine, the server to be refused may answer
/// later than dlock waits for it: then it tries again.
void is_refused(const std::function<Result()>& attempt, const std::string& said) {
  Result result = attempt();
  for (int tries = 1; tries < 20 && (result.exit_code == 0 || result.exit_code == 69); ++tries) {
    result = attempt();
  }
  is_refused(result, said);
}

Report doctor_of(const std::vector<std::string>& urls) {
  std::vector<std::string> others;
  for (std::size_t i = 1; i < urls.size(); ++i) {
    others.insert(others.end(), {"--server", urls[i]});
  }
  return doctor(urls[0], others);
}

void forget_k(const Fleet& good) {
  for (std::size_t i = 0; i < good.size(); ++i) {
    good.server(i).command({"DEL", "dlock:{k}", "dlock:{k}:fence"});
  }
}

/// Checks that dlock works with two good servers and this one, and warns why no more may fail.
void is_put_up_with(const Fleet& good, const std::string& bad, const std::string& said) {
  const auto urls = good.urls();
  const ProcessOptions options{.env = {{"DLOCK_SERVER", side_by_side({urls[0], bad, urls[1]})}}};
  for (int tries = 1;; ++tries) {
    Process job = start_dlock(
        {"run", "-t", "6", "-k", "k", "--", "sh", "-c", "echo $DLOCK_FENCE; exec sleep 60"},
        options);
    const bool told = eventually(
        [&] { return (times(job.err(), said) > 0 && !job.out().empty()) || !job.running(); });
    if (job.running()) job.signal(SIGTERM);
    const Result result = job.wait();
    // On a busy machine, a short lease may be lost, but not again and again.
    if ((result.exit_code == 69 || result.exit_code == 79) && tries < 3) continue;
    // There, the job may also name the server before that server has said what is wrong.
    if (!told && times(result.err, ": no answer") > 0 && tries < 3) continue;
    const auto wall_us = wall_now().time_since_epoch().count();
    const bool usual_fence =
        !result.out.empty() && std::abs(std::stoll(result.out) - wall_us) < 60'000'000;
    // A good server may be even later than the delayed one, so that dlock takes that one's fence.
    if (!usual_fence && tries < 3) {
      forget_k(good);
      continue;
    }
    CAPTURE(result.err);
    CHECK(told);
    CHECK(times(result.err, "k is held on 2 of 3 servers, and 2 are needed: ") > 0);
    CHECK(times(result.err, bad.substr(bad.find('@') + 1)) > 0);
    CHECK(result.signal == SIGTERM);
    CHECK(usual_fence);
    return;
  }
}

/// Checks that two of these and one good server grant no lock, and the message names both.
void is_no_majority(const Fleet& good, const std::vector<std::string>& bad, int exit_code) {
  const Result result = run_with({bad[0], good.urls()[0], bad[1]});
  CAPTURE(result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out == "");
  for (const std::string& url : bad) CHECK(times(result.err, url) > 0);
}

std::string bulk_string(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// Behaves like a Redis without scripts.
Step be_too_old(const std::vector<std::string>& words) {
  if (words[0] == "INFO") return say(bulk_string("# Server\r\nredis_version:2.4.18\r\n"));
  if (words[0] == "CONFIG") return say("*0\r\n");
  return say("-ERR unknown command '" + words[0] + "'\r\n");
}

RedisOptions on_a_port() { return {.tcp = true}; }

RedisOptions with_password() {
  RedisOptions options = on_a_port();
  options.password = "other";
  return options;
}

RedisOptions replica_of(const RedisServer& master) {
  RedisOptions options = on_a_port();
  options.config = {"replicaof 127.0.0.1 " + std::to_string(master.port()),
                    "repl-diskless-sync-delay 0"};
  return options;
}

}  // namespace

TEST_CASE("majority: servers that are no three are refused, 64") {
  const FleetScene scene({.servers = 3});
  const auto urls = scene.fleet.urls();
  const auto refused = [&](const std::vector<std::string>& servers) {
    const Result result = run_with(servers);
    CHECK(result.exit_code == 64);
    CHECK(result.out == "");
    return result.err;
  };
  CHECK(times(refused({urls[0], urls[1]}), "two servers") > 0);
  CHECK(times(refused({urls[0], urls[1], urls[0]}), "twice") > 0);
  CHECK(times(refused({urls[0], urls[1], "local:"}), "local:") > 0);
}

TEST_CASE("majority: one server under two names never has two votes") {
  const Fleet fleet({.servers = 2});
  const std::string one = fleet.urls()[0];
  const std::string same = fleet.server(0).url();  // without the proxy
  const std::string said = one + " and " + same + " are the same server";
  const Result none = run_with({one, "unix:///nonexistent/redis.sock", same});
  CHECK((none.exit_code == 64 || none.exit_code == 69));
  CHECK(none.out == "");
  CHECK(times(none.err, said) == 1);
  // If there is a majority without it, dlock may notice it only once the job runs, and it then does
  // no harm.
  Told job;
  // On a busy machine, there may be no majority in time, but not again and again.
  const bool served = in_one_of(3, [&] {
    job = told_by_a_job_with({one, fleet.urls()[1], same}, said);
    return job.result.exit_code == 64 || job.result.signal == SIGTERM;
  });
  CAPTURE(job.result.err);
  CHECK(served);
  CHECK(job.told);
  CHECK(times(job.result.err, said) > 0);
}

TEST_CASE("majority: a server named by its port and by its socket is refused, or told of") {
  const RedisServer one(on_a_port());
  FaultProxy slow(one.address(), true);
  const Fleet others({.servers = 3});
  const auto urls = others.urls();
  // The others are a majority without it.
  const std::vector<std::string> twice{one.url(), urls[0], urls[1], urls[2], one.tcp_url()};
  const std::string both = one.url() + " and " + one.tcp_url() + " are the same server";
  const Told job = told_by_a_job_with(twice, both);
  CAPTURE(job.result.err);
  CHECK(job.told);
  CHECK((job.result.exit_code == 64 || job.result.signal == SIGTERM));
  CHECK(times(job.result.err, both) == 1);
  is_refused([&] { return with(twice, {"inspect"}); }, both);
  const Report report = doctor_of(twice);
  CHECK(report.result.exit_code == 2);
  CHECK(report.says("independence", "error", "the same server"));

  const std::vector<std::string> slowly{one.url(), urls[0], urls[1], urls[2], slow.url()};
  const std::string late = one.url() + " and " + slow.url() + " are the same server";
  slow.delay(Direction::replies, milliseconds(1000));
  is_warned_of(slowly, late);
}

TEST_CASE("majority: a replica among the servers is refused, or told of") {
  const RedisServer master(on_a_port());
  const RedisServer replica(replica_of(master));
  const Fleet good({.servers = 2});
  const auto urls = good.urls();
  const std::string said =
      " is a replica of 127.0.0.1:" + std::to_string(master.port()) + ": name independent servers";
  for (const std::string& other : {master.tcp_url(), urls[1]}) {
    const std::vector<std::string> servers{urls[0], replica.tcp_url(), other};
    is_refused([&] { return with(servers, {"inspect"}); }, said);
    const Report report = doctor_of(servers);
    CHECK(report.result.exit_code == 2);
    CHECK(report.says("role", "error", "a replica of 127.0.0.1:"));
  }
  for (std::size_t i = 0; i < 2; ++i) good.proxy(i).delay(Direction::replies, milliseconds(300));
  const std::vector<std::string> quick{urls[0], replica.tcp_url(), urls[1]};
  is_refused([&] { return run_with(quick); }, said);
  const auto acquire = [&] {
    const Result result = with(quick, {"acquire", "-t", "30", "-k", "k"});
    if (result.exit_code != 0) return result;
    for (std::size_t i = 0; i < 2; ++i) good.server(i).command({"DEL", "dlock:{k}"});
    return result;
  };
  is_refused(acquire, said);
  for (std::size_t i = 0; i < 2; ++i) good.proxy(i).heal();
  FaultProxy slow(replica.address());
  slow.delay(Direction::replies, milliseconds(1000));
  is_warned_of({urls[0], slow.url(), urls[1]}, said);
}

TEST_CASE("majority: a short job that tells its steps names the server that takes no part") {
  const Fleet fleet;
  fleet.server(2).command({"LPUSH", "dlock:{k}", "text"});
  const std::string said = fleet.urls()[2] + ": k: the key holds data that is not a lock";
  Result result;
  // A short job, but long enough for an answer of that server, on a busy machine in some tries.
  in_one_of(3, [&] {
    result = with(fleet.urls(), {"run", "-v", "-k", "k", "--", "sleep", "2"});
    return times(result.err, said) == 1;
  });
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(times(result.err, said) == 1);
}

TEST_CASE("majority: one server that cannot take part is put up with and named, two are not") {
  const Fleet good({.servers = 3});
  const RedisServer locked(with_password());
  const RedisServer locked_too(with_password());
  is_put_up_with(good, locked.url(), "NOAUTH");
  is_no_majority(good, {locked.url(), locked_too.url()}, 77);
  const std::string port = "127.0.0.1:" + std::to_string(locked.port());
  is_put_up_with(good, "redis://:guessed@" + port,
                 "redis://" + port + ": user name or password is wrong");

  const FakeServer old(be_too_old);
  const FakeServer old_too(be_too_old);
  is_put_up_with(good, old.url(), "unknown command");
  is_no_majority(good, {old.url(), old_too.url()}, 69);

  const Fleet odd({.servers = 2});
  for (std::size_t i = 0; i < 2; ++i) odd.server(i).command({"SET", "dlock:{k}", "text"});
  is_put_up_with(good, odd.urls()[0], "the key holds data that is not a lock");
  is_no_majority(good, odd.urls(), 65);

  const FakeServer rubbish({say("?what\r\n")});
  const FakeServer other_rubbish({say("*1\r\n:1\r\n")});
  is_put_up_with(good, rubbish.url(), rubbish.url());
  is_no_majority(good, {rubbish.url(), other_rubbish.url()}, 69);

  const std::string nobody = "unix:///nonexistent/redis.sock";
  is_put_up_with(good, nobody, "No such file");
}

}  // namespace dlock::test
