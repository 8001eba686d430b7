#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/line.hpp"
#include "cli/place.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"

// The name of a server and its addresses. The names are those of the shim.

namespace dlock::test {
namespace {

ProcessOptions naming(const RedisScene& scene, const std::string& host) {
  ProcessOptions options = scene.options();
  options.env["DLOCK_SERVER"] = "redis://" + host + ":" + std::to_string(scene.server.port());
  options.env["LD_PRELOAD"] = DLOCK_NAMES_SHIM;
  options.env["NAMES_SHIM_ADDRESS"] = scene.path("address");
  return options;
}

}  // namespace

TEST_CASE("a name whose first address is dead, silent or one of IPv6: the lock is acquired") {
  const RedisScene scene({.tcp = true});
  const SilentAddress silent(scene.server.port());
  for (const char* host : {"two.test", "silent.test", "six.test"}) {
    const Result result = dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, naming(scene, host));
    check_ran(result, "ran\n");
    CHECK(result.err == "");
  }
}

TEST_CASE("the name of the server leads elsewhere: a waiter looks it up again and follows") {
  RedisScene scene({.tcp = true});
  write_file(scene.path("address"), "127.0.0.1");
  Process holder = scene.hold("k", "go", {"-t", "60"});
  Process waiter =
      start_dlock({"run", "-k", "k", "--", "touch", "ran"}, naming(scene, "moved.test"));
  REQUIRE(eventually([&] { return scene.waiting("k") == 1; }));
  const RedisServer other({.config = {"bind 127.0.0.2"}, .port = scene.server.port()});
  write_file(scene.path("address"), "127.0.0.2");
  scene.server.kill_hard();
  CHECK(waiter.wait().exit_code == 0);
  CHECK(scene.has("ran"));
  holder.kill_all();
}

namespace {

using Urls = std::vector<std::string>;

/// The environment in which dlock knows the test names, and only these servers.
ProcessOptions naming(const Urls& urls) {
  return {.env = {{"DLOCK_SERVER", side_by_side(urls)}, {"LD_PRELOAD", DLOCK_NAMES_SHIM}}};
}

Result run_named(const Urls& urls) {
  return dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, naming(urls));
}

/// Three who decide without anybody's help, and one server that has several names.
struct Named {
  Fleet three{{.servers = 3}};
  RedisServer server = [] {
    const RedisOptions options{.tcp = true};
    return RedisServer(options);
  }();
  /// Its URL under this name.
  std::string by(const std::string& host) const {
    return "redis://" + host + ":" + std::to_string(server.port());
  }
  /// The three, with one name before and one after them.
  Urls with(const std::string& one, const std::string& other) const {
    const Urls urls = three.urls();
    return {one, urls[0], urls[1], urls[2], other};
  }
};

}  // namespace

TEST_CASE("majority: a name that is looked up in vain, or for long, keeps nobody from the lock") {
  const Named named;
  const std::string one = named.by("a.0.test");
  const auto ran = [&](const std::string& other) {
    const Result result = run_named(named.with(one, other));
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out == "ran\n");
    return result.duration;
  };
  ran(named.by("b.0.none.test"));
  ran(named.by("b.30.none.test"));
  CHECK(ran(named.by("b.100000.test")) < stretched(milliseconds(5000)));
}

namespace {

RedisOptions reachable() { return {.tcp = true, .config = {"repl-diskless-sync-delay 0"}}; }

std::string info(const RedisServer& server, const std::string& section) {
  return server.command({"INFO", section}).text;
}

void replicate(const RedisServer& replica, const RedisServer& master) {
  replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  REQUIRE(eventually([&] { return holds(info(replica, "replication"), "master_link_status:up"); }));
}

/// A name that leads to one of two servers, like that of a managed endpoint: here a symbolic link
/// to the server's socket.
class MovingName {
 public:
  MovingName() {
    replicate(replica, master);
    std::filesystem::create_symlink(master.socket_path(), path_);
  }

  std::string url() const { return "unix://" + path_; }

  /// Fails over to the replica, which has all data. The old master goes on as its replica, with
  /// open connections. The name moves once a client has noticed the change.
  void fail_over() {
    master.command({"SET", "last", "write"});
    REQUIRE(eventually([&] { return replica.command({"GET", "last"}).text == "write"; }));
    replica.command({"REPLICAOF", "NO", "ONE"});
    replicate(master, replica);
    REQUIRE(eventually([&] { return holds(info(master, "errorstats"), "READONLY"); }));
    const std::string next = dir_ / "next";
    std::filesystem::create_symlink(replica.socket_path(), next);
    std::filesystem::rename(next, path_);
  }

  bool old_master_is_left() const {
    return !holds(master.command({"CLIENT", "LIST"}).text, "name=dlock");
  }

  RedisServer master{reachable()};
  RedisServer replica{reachable()};

 private:
  TempDir dir_;
  std::string path_ = dir_ / "redis.sock";
};

constexpr char until_told_to_go[] = "until [ -e go ]; do sleep 0.05; done";

}  // namespace

TEST_CASE("moved name: holder, waiter and acquire --attach follow the name of their server") {
  MovingName name;
  const TempDir dir;
  const ProcessOptions options{.env = {{"D", dlock_path()}, {"DLOCK_SERVER", name.url()}},
                               .cwd = dir.path()};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {dlock_path(), "run", "-k", "job"});
    return Process(words, clean(options));
  };
  Process holder = run({"-t", "9s", "--", "sh", "-c", std::string("echo in; ") + until_told_to_go});
  REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
  Process waiter = run({"--", "true"});
  Process script({"sh", "-c",
                  std::string("\"$D\" acquire -q -k other -t 9s --attach $$ && echo in; ") +
                      until_told_to_go + "; exit 3"},
                 clean(options));
  REQUIRE(eventually([&] { return script.out() == "in\n"; }));
  name.fail_over();
  REQUIRE(eventually([&] { return name.old_master_is_left(); }));
  CHECK(name.replica.command({"HLEN", "dlock:{job}"}).number > 0);
  CHECK(holder.running());
  CHECK(script.running());
  write_file(dir / "go", "");
  const Result held = holder.wait();
  CHECK(held.exit_code == 0);
  CHECK(count_lines(held.err) <= 2);
  CHECK(waiter.wait().exit_code == 0);
  CHECK(script.wait().exit_code == 3);
}

TEST_CASE("moved name: a member of a majority whose name has moved comes back, and says so once") {
  MovingName name;
  const RedisServer second;
  const RedisServer third;
  // A server that has just started has no vote yet.
  for (const RedisServer* each :
       std::vector<const RedisServer*>{&name.master, &name.replica, &second, &third}) {
    record_process_of(*each);
  }
  const TempDir dir;
  const ProcessOptions options{
      .env = {{"DLOCK_SERVER", side_by_side({name.url(), second.url(), third.url()})}},
      .cwd = dir.path()};
  Process holder({dlock_path(), "run", "-k", "job", "-t", "6s", "--", "sh", "-c",
                  std::string("echo in; ") + until_told_to_go},
                 clean(options));
  REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
  name.fail_over();
  REQUIRE(eventually([&] {
    return holds(name.replica.command({"CLIENT", "LIST"}).text, "name=dlock") &&
           name.old_master_is_left();
  }));
  write_file(dir / "go", "");
  const Result held = holder.wait();
  CHECK(held.exit_code == 0);
  CHECK(count_lines(held.err) <= 4);
}

}  // namespace dlock::test
