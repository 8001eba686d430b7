#include <doctest/doctest.h>
#include <stdio.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <utility>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"

namespace dlock::test {
namespace {

RedisOptions guarded() { return {.tcp = true, .password = password}; }

void write_secret(const std::string& path, const std::string& text) {
  write_file(path, text);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
}

/// From now on the user `jobs` has this password there.
bool give_jobs(const RedisServer& server, const std::string& secret) {
  return server
             .command({"ACL", "SETUSER", "jobs", "reset", "on", ">" + secret, "~dlock:*",
                       "&dlock:*", "+@all"})
             .text == "OK";
}

Result run_with(const RedisServer& server, ProcessOptions options,
                std::vector<std::string> flags = {}) {
  options.env.emplace("DLOCK_SERVER", server.tcp_url());
  flags.insert(flags.begin(), {"run", "-v", "-k", "a"});
  flags.insert(flags.end(), {"--", "true"});
  auto result = dlock(flags, options);
  CHECK(!holds(result.err + result.out, password));
  return result;
}

/// The final message, after the steps that -v prints.
std::string last_line(const Result& result) {
  return result.err.substr(result.err.rfind("dlock: "));
}

ProcessOptions with(const std::string& name, const std::string& value) {
  ProcessOptions options;
  options.env[name] = value;
  return options;
}

TEST_CASE("password: taken from each place it may stand in") {
  const RedisServer server(guarded());
  const TempDir dir;
  write_secret(dir / "password", std::string(password) + "\n");
  write_secret(dir / "conf", std::string("password = ") + password + "\n");
  write_secret(dir / "conf-file", "password-file = " + (dir / "password") + "\n");
  CHECK(run_with(server, {}, {"--password-file", dir / "password"}).exit_code == 0);
  CHECK(run_with(server, with("DLOCK_PASSWORD_FILE", dir / "password")).exit_code == 0);
  CHECK(run_with(server, with("DLOCK_PASSWORD", password)).exit_code == 0);
  CHECK(run_with(server, with("REDISCLI_AUTH", password)).exit_code == 0);
  CHECK(run_with(server, with("DLOCK_CONFIG", dir / "conf")).exit_code == 0);
  CHECK(run_with(server, with("DLOCK_CONFIG", dir / "conf-file")).exit_code == 0);
  const std::string url =
      "redis://:" + std::string(password) + "@127.0.0.1:" + std::to_string(server.port());
  CHECK(run_with(server, with("DLOCK_SERVER", url)).exit_code == 0);
}

TEST_CASE("password: 77 where it is missing or wrong, and it is never shown") {
  const RedisServer server(guarded());
  const RedisServer open;
  const TempDir dir;
  write_secret(dir / "long", std::string(1000, 'w') + "\n\n");
  for (const auto& options : {ProcessOptions{}, with("DLOCK_PASSWORD", "wrong-one"),
                              with("DLOCK_PASSWORD_FILE", dir / "long")}) {
    auto result = run_with(server, options);
    CHECK(result.exit_code == 77);
    CHECK(is_one_message(last_line(result)));
    CHECK(holds(last_line(result), "redis://127.0.0.1:" + std::to_string(server.port())));
    CHECK(!holds(result.err, "wrong-one"));
    CHECK(!holds(result.err, "wwww"));
  }
  check_message(dlock({"inspect", "--server", open.url()}, with("DLOCK_PASSWORD", password)), 77);
}

TEST_CASE("password: in a URL on the command line it is warned of and gone from there") {
  const RedisServer server(guarded());
  const std::string url =
      "redis://default:" + std::string(password) + "@127.0.0.1:" + std::to_string(server.port());
  const auto holder =
      start_dlock({"run", "-k", "a", "--server", url, "--", "sh", "-c", "echo in; exec sleep 60"});
  REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
  const auto argv = read_file("/proc/" + std::to_string(holder.pid()) + "/cmdline");
  CHECK(!holds(argv, password));
  CHECK(holds(argv, "@127.0.0.1"));
  CHECK(is_one_message(holder.err()));
  CHECK(holds(holder.err(), "warning: a password on the command line"));
  CHECK(holds(holder.err(), "--password-file"));
  const auto refused = dlock({"run", "-q", "-n", "-k", "a", "--server", url, "--", "true"});
  CHECK(refused.exit_code == 75);
  CHECK(!holds(refused.err, password));
}

TEST_CASE("password: users of the ACL, and a user without a password is refused") {
  const RedisServer server(guarded());
  const std::string address = "@127.0.0.1:" + std::to_string(server.port());
  REQUIRE(server
              .command({"ACL", "SETUSER", "jobs", "on", ">" + std::string(password), "~dlock:*",
                        "resetchannels", "&dlock:*", "+@all", "-@dangerous"})
              .text == "OK");
  REQUIRE(server.command({"ACL", "SETUSER", "reader", "on", "nopass", "~*", "&*", "+@read"}).text ==
          "OK");
  auto options = with("DLOCK_SERVER", "redis://jobs" + address);
  options.env["DLOCK_PASSWORD"] = password;
  CHECK(run_with(server, options).exit_code == 0);
  const auto foreign = run_with(server, options, {"--prefix", "other:"});
  CHECK(foreign.exit_code == 77);
  CHECK(is_one_message(last_line(foreign)));
  options.env["DLOCK_SERVER"] = "redis://reader" + address;
  const auto reader = run_with(server, options);
  CHECK(reader.exit_code == 77);
  CHECK(is_one_message(last_line(reader)));
  const auto bare =
      run_with(server, with("DLOCK_SERVER", "redis://" + std::string(password) + address));
  check_message(bare, 64);
}

TEST_CASE("password: a pipe is read once, for however many servers") {
  const RedisServer servers[] = {RedisServer(guarded()), RedisServer(guarded()),
                                 RedisServer(guarded())};
  ProcessOptions options;
  for (const RedisServer& each : servers) options.env["DLOCK_SERVER"] += each.url() + " ";
  options.env["D"] = dlock_path();
  options.env["P"] = password;
  const auto result =
      run({"bash", "-c", R"("$D" inspect a --password-file <(echo "$P"))"}, clean(options));
  check_quiet(result);
}

TEST_CASE("password: a holder and a waiter outlive its rotation, and its file may follow later") {
  const RedisServer server(guarded());
  const TempDir dir;
  REQUIRE(give_jobs(server, "first"));
  write_secret(dir / "password", "first");
  const std::string url = "redis://jobs@127.0.0.1:" + std::to_string(server.port());
  auto options = with("DLOCK_SERVER", url);
  options.env["DLOCK_PASSWORD_FILE"] = dir / "password";
  CommandInside holder(options, {"-t", "60s"});
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, options);
  REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
  REQUIRE(give_jobs(server, "second"));
  server.command({"CLIENT", "KILL", "USER", "jobs"});
  CHECK(eventually([&] { return holds(waiter.err(), "user name or password is wrong"); }));
  holder.end();
  write_secret(dir / "password", "second");
  CHECK(holder.process.wait().exit_code == 0);
  CHECK(!holds(holder.process.err(), "could not release"));
  CHECK(waiter.wait().out == "in\n");
}

TEST_CASE("password: its file may be unreadable or empty for a while once a lock is held") {
  const RedisServer server(guarded());
  const TempDir dir;
  write_secret(dir / "password", password);
  auto options = with("DLOCK_SERVER", server.tcp_url());
  options.env["DLOCK_PASSWORD_FILE"] = dir / "password";
  CommandInside holder(options, {"-t", "60s"});
  write_secret(dir / "password", "");
  server.command({"CLIENT", "KILL", "TYPE", "normal"});
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
  CHECK(holder.process.err() == "");
}

TEST_CASE("password: a command gives it for each login, and is none of the tree of COMMAND") {
  const RedisServer server(guarded());
  const TempDir dir;
  REQUIRE(give_jobs(server, "first"));
  write_secret(dir / "password", "first");
  auto options = with("DLOCK_SERVER", "redis://jobs@127.0.0.1:" + std::to_string(server.port()));
  // The process that the command leaves behind runs as long as the test.
  options.env["DLOCK_PASSWORD_COMMAND"] = "cd " + dir.path() +
                                          "; while [ -e password ]; do sleep 0.1; done & "
                                          "cat password; echo >>logins";
  CommandInside holder(options, {"-t", "60s", "--wait-tree"});
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, options);
  REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
  const auto logins = [&] { return read_file(dir / "logins").size(); };
  const auto before = logins();
  write_secret(dir / "password", "second\n");
  REQUIRE(give_jobs(server, "second"));
  server.command({"CLIENT", "KILL", "USER", "jobs"});
  REQUIRE(eventually([&] { return logins() >= before + 2; }));
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
  CHECK(holder.process.err() == "");
  CHECK(waiter.wait().out == "in\n");
}

TEST_CASE("password: a command that fails is one line at the start, and a retried outage later") {
  const RedisServer server(guarded());
  const TempDir dir;
  const std::pair<const char*, const char*> failures[] = {
      {"echo why >&2; echo more >&2; exit 3", "exited with 3: why\n"},
      {"/nowhere", "exited with 127: "},
      {"kill -KILL $$", "died of signal KILL\n"},
      {"echo >&2; :", "wrote nothing to stdout\n"},
      {"echo one; echo two", "wrote more than one line to stdout, the password\n"}};
  for (const auto& [command, why] : failures) {
    CAPTURE(command);
    const auto failed = run_with(server, {}, {"--password-command", command});
    check_message(failed, 64);
    CHECK(failed.err.starts_with(std::string("dlock: --password-command: the command ") + why));
  }
  const auto both = run_with(server, {}, {"--password-command=x", "--password-file=/x"});
  CHECK(both.exit_code == 64);
  CHECK(both.err == "dlock: --password-command: excludes --password-file\n");

  REQUIRE(give_jobs(server, "first"));
  write_secret(dir / "password", "first");
  auto options = with("DLOCK_SERVER", "redis://jobs@127.0.0.1:" + std::to_string(server.port()));
  options.env["DLOCK_PASSWORD_COMMAND"] = "cat " + (dir / "password");
  CommandInside holder(options, {"-t", "60s"});
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, options);
  REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
  REQUIRE(rename((dir / "password").c_str(), (dir / "gone").c_str()) == 0);
  REQUIRE(give_jobs(server, "second"));
  server.command({"CLIENT", "KILL", "USER", "jobs"});
  CHECK(eventually(
      [&] { return holds(waiter.err(), "_COMMAND: the command exited with 1: cat: "); }));
  write_secret(dir / "password", "second");
  holder.end();
  CHECK(holder.process.wait().exit_code == 0);
  CHECK(waiter.wait().out == "in\n");
}

TEST_CASE("password: a command that does not end is killed, with all that it started") {
  const RedisServer server(guarded());
  const TempDir dir;
  const std::string command = "sleep 61 & echo $! >" + (dir / "pid") + "; echo half >&2; sleep 62";
  const auto late = run_with(server, {}, {"--password-command", command});
  CHECK(late.exit_code == 64);
  CHECK(late.err ==
        "dlock: --password-command: the command was killed: it ran for more than 10s: half\n");
  const int left = std::stoi(read_file(dir / "pid"));
  CHECK(eventually([&] { return !is_alive(left); }));
}

TEST_CASE("password: that of sentinels, and that of a majority, may be rotated below a holder") {
  const TempDir dir;
  const RedisServer servers[] = {RedisServer(guarded()), RedisServer(guarded()),
                                 RedisServer(guarded())};
  RedisOptions watching;
  watching.tcp = watching.sentinel = true;
  watching.config = {"sentinel monitor locks 127.0.0.1 " + std::to_string(servers[0].port()) + " 1",
                     std::string("sentinel auth-pass locks ") + password};
  const RedisServer sentinel(watching);
  ProcessOptions of_sentinels = with("DLOCK_PASSWORD", password);
  of_sentinels.env["DLOCK_SERVER"] =
      "redis+sentinel://127.0.0.1:" + std::to_string(sentinel.port()) + "/locks";
  of_sentinels.env["DLOCK_SENTINEL_USER"] = "jobs";
  of_sentinels.env["DLOCK_SENTINEL_PASSWORD_FILE"] = dir / "password";
  ProcessOptions of_majority = with("DLOCK_PASSWORD_FILE", dir / "password");
  for (const RedisServer& each : servers) {
    record_process_of(each, std::chrono::hours(1), false);
    of_majority.env["DLOCK_SERVER"] +=
        "redis://jobs@127.0.0.1:" + std::to_string(each.port()) + " ";
  }
  const auto rotate = [&](const std::string& to) {
    write_secret(dir / "password", to);
    bool all = give_jobs(sentinel, to);
    for (const RedisServer& each : servers) all = give_jobs(each, to) && all;
    return all;
  };
  sentinel.command({"ACL", "SETUSER", "default", "-@all", "+acl"});
  for (const ProcessOptions& options : {of_sentinels, of_majority}) {
    CAPTURE(options.env.at("DLOCK_SERVER"));
    REQUIRE(rotate("first"));
    CommandInside holder(options, {"-t", "60s"});
    Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, options);
    REQUIRE(eventually([&] { return says_that_it_waits(waiter); }));
    REQUIRE(rotate("second"));
    for (const RedisServer& each : servers) {
      each.command({"CLIENT", "KILL", "TYPE", "normal"});
      each.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    }
    holder.end();
    CHECK(holder.process.wait().exit_code == 0);
    CHECK(!holds(holder.process.err(), "could not release"));
    CHECK(waiter.wait().out == "in\n");
  }
}

TEST_CASE("password: a wrong one that dlock's own words or stars hold is refused as any other") {
  const RedisServer server(guarded());
  const std::string address = "@127.0.0.1:" + std::to_string(server.port());
  for (const char* wrong : {"***", "*", "password", "user", "e"}) {
    CAPTURE(wrong);
    check_says(dlock({"run", "-n", "-k", "a", "--server", "redis://user" + address, "--", "true"},
                     with("DLOCK_PASSWORD", wrong)),
               77, ": user name or password is wrong (it said: WRONGPASS)\n");
  }
  const std::string url = "redis://user:***" + address;
  check_says(dlock({"run", "-n", "-k", "a", "--server", url, "--", "true"}), 77,
             ": user name or password is wrong");
}

}  // namespace
TEST_CASE("password: a server that repeats what it was sent does not get it shown") {
  FakeServer server(std::vector<Step>{
      say(std::string("-ERR unknown command 'AUTH', with args beginning with: '") + password +
          "' \r\n")});
  for (const char* flag : {"-q", "-v"}) {
    const Result result =
        dlock({"inspect", "--server", server.url(), flag}, with("DLOCK_PASSWORD", password));
    check_says(result, 69, "(it said: unknown command)");
    CHECK(!holds(result.err + result.out, password));
  }
}

}  // namespace dlock::test
