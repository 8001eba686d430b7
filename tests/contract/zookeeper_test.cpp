#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "cas/open_record.hpp"
#include "contract/engines.hpp"
#include "support/skip.hpp"
#include "support/zookeeper_servers.hpp"
#include "zookeeper/libzookeeper.hpp"
#include "zookeeper/zookeeper_backend.hpp"
#include "zookeeper/zookeeper_client.hpp"

// ZooKeeperBackend, below the contract of a store.
// The protocol of ZooKeeper's servers, byte by byte: frames of values in Apache's jute encoding.

namespace dlock::test {
namespace {

/// No server of the tests sends more.
constexpr std::int32_t longest_frame = 16 << 20;

/// The number at `at`; 0 where there is none.
std::int32_t jute_number_at(std::string_view bytes, std::size_t at) {
  if (bytes.size() < 4 || at > bytes.size() - 4) return 0;
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(at, 4))
    number = (number << 8) | static_cast<unsigned char>(byte);
  return static_cast<std::int32_t>(number);
}

/// The size of the first whole frame in `bytes`; nothing if it is incomplete. Bytes that cannot be
/// a frame, such as the answer to a four-letter command, count as one frame.
std::optional<std::size_t> jute_frame_size(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::int32_t length = jute_number_at(bytes, 0);
  if (length < 0 || length > longest_frame) return bytes.size();
  const std::size_t size = 4 + static_cast<std::size_t>(length);
  return bytes.size() < size ? std::nullopt : std::optional(size);
}

constexpr std::int32_t get_data = 4, get_children2 = 12;  ///< codes in ZooKeeper's protocol

/// A proxy for one client of a server. When the client sends the first request of the kind
/// `before`, and has the reply to the previous one, it calls `between`, once.
class BetweenReads {
 public:
  BetweenReads(const Endpoint& server, std::int32_t before, std::function<void()> between)
      : before_(before),
        between_(std::move(between)),
        server_{"", server.port},
        listener_(listen_at(address_)),
        thread_([this] {
          while (const Fd client{accept(listener_.get(), nullptr, nullptr)}) serve(client);
        }) {}
  ~BetweenReads() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  BetweenReads(const BetweenReads&) = delete;
  BetweenReads& operator=(const BetweenReads&) = delete;

  int port() const { return address_.port; }
  /// Returns once `between` has run; the caller may then use its data.
  void await() { happened_.get_future().wait(); }

 private:
  void serve(const Fd& client) {
    const Fd server = connect_to(server_);
    std::string asked, answered;
    std::int32_t last_answered = 0;
    while (true) {
      pollfd fds[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      poll_until(fds, never);
      for (const pollfd& fd : fds) {
        if (fd.revents == 0) continue;
        const std::string bytes = receive_some(fd.fd);
        if (bytes.empty()) return;
        (fd.fd == client.get() ? asked : answered) += bytes;
        if (fd.fd == server.get()) send_all(client.get(), bytes);
      }
      while (const auto size = jute_frame_size(answered)) {
        last_answered = jute_number_at(answered, 4);
        answered.erase(0, *size);
      }
      while (const auto size = jute_frame_size(asked)) {
        if (between_ && jute_number_at(asked, 8) == before_) {
          if (last_answered + 1 != jute_number_at(asked, 4)) break;  // not yet
          std::exchange(between_, nullptr)();
          happened_.set_value();
        }
        send_all(server.get(), asked.substr(0, *size));
        asked.erase(0, *size);
      }
    }
  }

  std::int32_t before_;
  std::function<void()> between_;
  std::promise<void> happened_;
  Address server_;
  Address address_;
  Fd listener_;
  std::thread thread_;
};

ZooKeeperBackend backend_of(const ZooKeeperServers& servers) {
  return ZooKeeperBackend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
}

/// Writes until the record has this text; gives up a server that is silent for two seconds.
bool comes_to_have(ZooKeeperBackend& backend, const std::string& name, const Update& update) {
  const auto written = [&] {
    const Snapshot seen = backend.read(name, nullptr, soon());
    if (seen.text == update.text) return true;
    return std::holds_alternative<Version>(backend.write(name, seen, update, soon()));
  };
  return eventually([&] { return without_error(written); });
}

TEST_CASE("ZooKeeper: a client that turns to another record and back still hears messages") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend waiter = backend_of(servers), holder = backend_of(servers);
  OwnLife own{true};
  const Snapshot none = waiter.read("x:a", &own, soon());
  Update entry{"an entry"};
  entry.begun[life_in(own.address)] = 0;
  REQUIRE(std::holds_alternative<Version>(waiter.write("x:a", none, entry, soon())));
  waiter.read("x:b", &own, soon());
  const Snapshot last = waiter.read("x:a", &own, soon());
  const Snapshot seen = holder.read("x:a", nullptr, soon());
  CHECK(seen.lives->ids.size() == 1);
  CHECK(seen.lives->contains(life_in(own.address)));
  const Update handed{"handed over", {}, {{own.address, "yours"}}};
  REQUIRE(std::holds_alternative<Version>(holder.write("x:a", seen, handed, soon())));
  RecordWatch watch{"x:a", own.address, {}, last.revision};
  const auto heard = waiter.watch(watch, soon().deadline, -1);
  REQUIRE(std::holds_alternative<std::string>(heard));
  CHECK(std::get<std::string>(heard) == "yours");
}

TEST_CASE("ZooKeeper: a write meant for a record that was removed and made again does not count") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend late = backend_of(servers), other = backend_of(servers);
  const Snapshot none = other.read("x:a", nullptr, soon());
  REQUIRE(std::holds_alternative<Version>(other.write("x:a", none, {"first"}, soon())));
  const Snapshot old = late.read("x:a", nullptr, soon());
  other.sweep("x:", "", soon());
  CHECK(other.read("x:a", nullptr, soon()).version == 0);
  REQUIRE(std::holds_alternative<Version>(
      other.write("x:a", other.read("x:a", nullptr, soon()), {"second"}, soon())));
  const auto refused = late.write("x:a", old, {"late"}, soon());
  REQUIRE(std::holds_alternative<Snapshot>(refused));
  CHECK(std::get<Snapshot>(refused).text == "second");
}

TEST_CASE("ZooKeeper: a record that is removed and made again while it is read is read anew") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend other(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  const auto write = [&](const Update& update) { return comes_to_have(other, "x:a", update); };
  REQUIRE(write({"first"}));
  BetweenReads between(servers.endpoint(0), get_children2, [&] {
    other.sweep("x:", "", soon());
    CHECK(write({"second"}));
  });
  Endpoint endpoint = servers.endpoint(0);
  endpoint.port = between.port();
  ZooKeeperBackend late({endpoint}, "zk", "", "x:", milliseconds(20'000));
  const Snapshot seen = late.read("x:a", nullptr, soon());
  between.await();
  CHECK(seen.text == "second");
  CHECK(comes_to_have(late, "x:a", {"third"}));
  CHECK(other.read("x:a", nullptr, soon()).text == "third");
}

TEST_CASE(
    "ZooKeeper: a record that is renewed while it is read is judged by a clock read after it") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend other(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  REQUIRE(comes_to_have(other, "x:a", {"held"}));
  microseconds renewed{};
  BetweenReads between(servers.endpoint(0), get_data, [&] {
    const auto clock = [&] { return other.read("x:a", nullptr, soon()).clock; };
    const auto begun = clock();
    CHECK(eventually([&] { return (renewed = clock()) > begun; }));
    CHECK(comes_to_have(other, "x:a", {"renewed"}));
  });
  Endpoint endpoint = servers.endpoint(0);
  endpoint.port = between.port();
  ZooKeeperBackend reader({endpoint}, "zk", "", "x:", milliseconds(20'000));
  const Snapshot seen = reader.read("x:a", nullptr, soon());
  between.await();
  CHECK(seen.text == "renewed");
  CHECK(seen.clock >= renewed);
}

TEST_CASE("ZooKeeper: a client from before its data were lost gets a session again") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend backend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  for (const char* name : {"x:a", "x:b", "x:c"}) REQUIRE(comes_to_have(backend, name, {"held"}));
  servers.kill_hard(0);
  servers.wipe(0);
  servers.start(0);
  servers.await_service();
  CHECK(comes_to_have(backend, "x:a", {"held again"}));
  CHECK(backend.read("x:b", nullptr, soon()).version == 0);
}

TEST_CASE("ZooKeeper: a record of nearly 1 MB is kept") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend backend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  const Update large{std::string(backend.largest_record(), 'x')};
  REQUIRE(comes_to_have(backend, "x:a", large));
  CHECK(backend.read("x:a", nullptr, soon()).text == large.text);
}

TEST_CASE("ZooKeeper: a list of large records is complete") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend backend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  const std::vector<std::string> names{"x:k:1", "x:k:2", "x:k:3", "x:k:4",
                                       "x:k:5", "x:k:6", "x:k:7"};
  for (const std::string& name : names) {
    REQUIRE(comes_to_have(backend, name, {std::string(900'000, 'x')}));
  }
  const RecordPage page = backend.list("x:k:", "", soon());
  CHECK(page.last);
  std::vector<std::string> listed;
  for (const NamedRecord& record : page.records) {
    CHECK(record.seen.text.size() == 900'000);
    listed.push_back(record.name);
  }
  CHECK(listed == names);
}

TEST_CASE("ZooKeeper: twenty thousand arrivals at latches are counted, listed and swept") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers;
  ZooKeeperBackend backend(servers.endpoints(), "zk", "", "x:", milliseconds(20'000));
  REQUIRE(comes_to_have(backend, "x:a", {"ended", std::chrono::microseconds(1)}));
  ZooKeeperClient client(servers.endpoints(), "zk", milliseconds(20'000));
  constexpr int requests = 40, in_each = 500;
  const std::string generation(32, 'f');
  for (int i = 0; i < requests; ++i) {
    ZooKeeperRequest makes{ZooKeeperRequest::Kind::multi};
    for (int j = 0; j < in_each; ++j) {
      const std::string number = std::to_string(100'000 + i * in_each + j);
      const std::string name = "arrival:" + generation + ":" + std::string(26, '0') + number;
      makes.changes.push_back({ZooKeeperChange::Kind::create, "/x/" + name});
    }
    // All or nothing: existing nodes come from an earlier try whose answer came too late.
    REQUIRE(eventually([&] {
      const int code = client.ask({makes}, soon()).front().code;
      return code == ZOK || code == ZNODEEXISTS;
    }));
  }
  CHECK(backend.count("x:arrival:", soon()) == requests * in_each);
  CHECK(backend.count("x:a", soon()) == requests * in_each + 1);
  const RecordPage page = backend.list("x:", "", soon());
  CHECK_FALSE(page.last);
  REQUIRE(page.records.size() == 1);
  CHECK(page.records[0].seen.text == "ended");
  backend.sweep("x:", "", soon());
  CHECK(backend.count("x:a", soon()) == requests * in_each);
}

TEST_CASE("ZooKeeper: a list has what was written before, also from a server that lags behind") {
  if (is_missing<ZooKeeperServers>()) return;
  ZooKeeperServers servers({.servers = 3, .tick = milliseconds(1000)});
  const std::size_t leader = servers.leader(), follower = (leader + 1) % servers.size();
  const auto open = [&](std::size_t server) {
    return ZooKeeperBackend({servers.endpoint(server)}, "zk", "", "x:", milliseconds(40'000));
  };
  ZooKeeperBackend reader = open(follower), writer = open(leader);
  reader.read("x:none", nullptr, soon());
  constexpr int records = 300;
  servers.stop(follower);
  for (int i = 0; i < records; ++i) {
    REQUIRE(comes_to_have(writer, "x:k:" + std::to_string(i), {"an entry"}));
  }
  // The follower gets the request before it knows any of the records.
  Event sent;
  CallOptions call_options = soon();
  call_options.sent = &sent;
  auto count = std::async(std::launch::async, [&] { return reader.count("x:k:", call_options); });
  CHECK(eventually([&] { return sent.raised(); }));
  servers.cont(follower);
  CHECK(count.get() == records);
}

}  // namespace

}  // namespace dlock::test
