#include "zookeeper/zookeeper_client.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "zookeeper/libzookeeper.hpp"
#include "zookeeper/zookeeper_callbacks.hpp"

namespace dlock {
namespace {

/// Constants of the library and of ZooKeeper's protocol, where they are variables.
constexpr int associating_state = 2;  ///< connected, and without a session yet
constexpr int connected_state = 3;
constexpr int expired_state = -112;
constexpr int wants_write = 1;
constexpr int wants_read = 2;
constexpr int ephemeral_node = 1;
constexpr int all_rights = 31;

/// While another server may answer, one is not waited for longer.
constexpr milliseconds longest_try{2000};

/// So often each server may refuse a session before it is given up.
constexpr int most_refusals = 3;

Id whom(bool login) {
  static std::array<char, 6> world{"world"};
  static std::array<char, 7> anyone{"anyone"};
  static std::array<char, 5> auth{"auth"};
  static std::array<char, 1> nobody{""};
  return login ? Id{auth.data(), nobody.data()} : Id{world.data(), anyone.data()};
}

/// The rights on a node: the user's that made it, or everybody's.
struct Rights {
  explicit Rights(bool login) : entry{all_rights, whom(login)}, list{1, &entry} {}
  ACL entry;
  ACL_vector list;
};

}  // namespace

bool is_lost(int code) {
  return code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT || code == ZSESSIONEXPIRED ||
         code == ZSESSIONMOVED || code == ZCLOSING || code == ZINVALIDSTATE;
}

ZooKeeperClient::ZooKeeperClient(std::vector<Endpoint> servers, std::string shown,
                                 milliseconds session)
    : servers_(std::move(servers)),
      shown_(std::move(shown)),
      addresses_(servers_, shown_),
      session_(session),
      watches_(std::make_shared<ZooKeeperWatches>()) {}

ZooKeeperClient::~ZooKeeperClient() { close(); }

void ZooKeeperClient::close() {
  if (handle_ == nullptr) return;
  libzookeeper().zookeeper_close(std::exchange(handle_, nullptr));
  fd_ = -1;
  watches_->changed.clear();
}

int ZooKeeperClient::state() const {
  return handle_ == nullptr ? 0 : libzookeeper().zoo_state(handle_);
}

bool ZooKeeperClient::is_open() const { return state() == connected_state; }

std::string ZooKeeperClient::session_id() const {
  if (!is_open()) return "";
  const auto id = static_cast<std::uint64_t>(libzookeeper().zoo_client_id(handle_)->client_id);
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id, 16).ptr;
  return {digits.data(), end};
}

milliseconds ZooKeeperClient::granted_session() const {
  return is_open() ? milliseconds(libzookeeper().zoo_recv_timeout(handle_)) : milliseconds(0);
}

/// The session goes on where the servers are now. The library takes a list whose hosts it knows,
/// whatever their ports, for the one it has: servers that share one are not followed.
void ZooKeeperClient::follow_servers(const CallOptions& call_options) {
  if (!addresses_.look_up_again(call_options)) return;
  libzookeeper().zoo_set_servers(handle_, addresses_.list().c_str());
  fd_ = -1;  // closed, maybe: the number may be another's by now
  failed_connects_ = 0;
}

void ZooKeeperClient::open(const CallOptions& call_options) {
  close();
  std::string login;
  if (has_login()) {
    const Endpoint& server = servers_.front();
    login = *server.user + ":" + (server.password ? server.password->text(call_options) : "");
  }
  addresses_.look_up(call_options);
  handle_ = libzookeeper().zookeeper_init(addresses_.list().c_str(), ZooKeeperWatches::call,
                                          static_cast<int>(session_.count()), nullptr, nullptr, 0);
  if (handle_ == nullptr) throw_errno("cannot use libzookeeper");
  counted_ = reached_ = false;
  failed_connects_ = refusals_ = 0;
  if (login.empty()) return;
  libzookeeper().zoo_add_auth(handle_, "digest", login.data(), static_cast<int>(login.size()),
                              nullptr, nullptr);
}

/// The library then takes the next server, with the same session. It has to notice at once: a
/// request that it takes before, it counts among those of the next connection, and never sends.
void ZooKeeperClient::drop_connection() {
  if (fd_ < 0) return;
  shutdown(fd_, SHUT_RDWR);
  if (!is_open() && state() != associating_state) return;
  int processed = ZOK;
  while (processed == ZOK || processed == ZNOTHING) {
    processed = libzookeeper().zookeeper_process(handle_, wants_read);
  }
  ++failed_connects_;
  fd_ = -1;  // closed: the number may be another's by now
}

bool ZooKeeperClient::step(Deadline until, const CallOptions& call_options) {
  const LibZooKeeper& lib = libzookeeper();
  int interest = 0;
  timeval pause{};
  int fd = -1;
  const int began = lib.zookeeper_interest(handle_, &fd, &interest, &pause);
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);  // also a new one that has the same number
  fd_ = fd;
  if (began != ZOK) ++failed_connects_;
  const auto events = static_cast<short>(((interest & wants_read) != 0 ? POLLIN : 0) |
                                         ((interest & wants_write) != 0 ? POLLOUT : 0));
  pollfd fds[] = {{fd, events, 0}, {call_options.cancel_fd, POLLIN, 0}};
  // A pause of nothing would be a busy loop while no server can be reached.
  auto span = std::chrono::seconds(pause.tv_sec) + microseconds(pause.tv_usec);
  if (fd < 0) span = std::clamp<microseconds>(span, milliseconds(1), milliseconds(100));
  const int ready = poll_until(fds, std::min(later(BootClock::now(), span), until));
  if (ready != 0 && fds[1].revents != 0) throw_interrupted();
  if (fd >= 0) {
    const bool lost = (fds[0].revents & (POLLERR | POLLHUP)) != 0;
    const bool associates = state() == associating_state;
    reached_ = reached_ || associates || ((fds[0].revents & POLLOUT) != 0 && !lost);
    const int happened = ((fds[0].revents & POLLIN) != 0 || lost ? wants_read : 0) |
                         ((fds[0].revents & POLLOUT) != 0 || lost ? wants_write : 0);
    const int processed = lib.zookeeper_process(handle_, happened);
    if (state() != connected_state && processed != ZOK && processed != ZNOTHING) {
      ++failed_connects_;
      if (associates) ++refusals_;
      fd_ = -1;  // closed: the number may be another's by now
    }
  }
  if (is_open()) {
    refusals_ = 0;
    if (!std::exchange(counted_, true)) ++sessions_;
  }
  return ready != 0 || BootClock::now() < until;
}

void ZooKeeperClient::connect(const CallOptions& call_options) {
  if (handle_ == nullptr || state() == expired_state) open(call_options);
  if (is_open()) return;
  if (std::exchange(gave_up_, false)) follow_servers(call_options);
  Deadline next_server = later(BootClock::now(), longest_try);
  failed_connects_ = 0;
  bool closes = false;
  while (!is_open()) {
    const bool in_time = step(std::min(next_server, call_options.deadline), call_options);
    if (is_open()) return;
    closes = closes || refusals_ > 0;
    // A server that has lost its data takes no client that has seen more than it has.
    const bool is_refused = refusals_ > most_refusals * addresses_.count();
    if (state() == expired_state || is_refused) open(call_options);
    if (failed_connects_ >= addresses_.count()) follow_servers(call_options);
    const bool none_there = !reached_ && !closes && failed_connects_ > addresses_.count();
    if (none_there) throw_unavailable(shown_ + ": cannot connect: is it running?");
    if (BootClock::now() >= call_options.deadline) {
      gave_up_ = true;
      throw_unavailable(
          shown_ +
          (closes     ? ": the server closes each connection at once: do most of its servers run, "
                        "and is this host below its limit maxClientCnxns?"
           : reached_ ? ": there is a server, but it gives no session: is it a ZooKeeper, and do "
                        "most of its servers run?"
                      : ": no server could be reached in time"));
    }
    if (in_time) continue;
    drop_connection();
    next_server = later(BootClock::now(), longest_try);
  }
}

void ZooKeeperClient::submit_multi(const ZooKeeperRequest& request,
                                   const std::shared_ptr<ZooKeeperBatch>& batch,
                                   std::size_t index) {
  const LibZooKeeper& lib = libzookeeper();
  const Rights rights(has_login());
  std::vector<zoo_op_t> changes(request.changes.size());
  batch->results.resize(request.changes.size());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const ZooKeeperChange& change = request.changes[i];
    const auto length = static_cast<int>(change.data.size());
    zoo_op_t* const to = &changes[i];
    switch (change.kind) {
      case ZooKeeperChange::Kind::check:
        lib.zoo_check_op_init(to, change.path.c_str(), change.version);
        break;
      case ZooKeeperChange::Kind::create:
      case ZooKeeperChange::Kind::create_ephemeral: {
        const bool ephemeral = change.kind == ZooKeeperChange::Kind::create_ephemeral;
        lib.zoo_create_op_init(to, change.path.c_str(), change.data.data(), length, &rights.list,
                               ephemeral ? ephemeral_node : 0, nullptr, 0);
        break;
      }
      case ZooKeeperChange::Kind::set:
        lib.zoo_set_op_init(to, change.path.c_str(), change.data.data(), length, change.version,
                            nullptr);
        break;
      case ZooKeeperChange::Kind::remove:
        lib.zoo_delete_op_init(to, change.path.c_str(), change.version);
        break;
    }
  }
  auto slot = std::make_unique<ZooKeeperBatch::Slot>(ZooKeeperBatch::Slot{batch, index});
  const int code = lib.zoo_amulti(handle_, static_cast<int>(changes.size()), changes.data(),
                                  batch->results.data(), ZooKeeperBatch::done_all, slot.get());
  if (code != ZOK) {
    ZooKeeperBatch::done(code, slot.release());
    return;
  }
  static_cast<void>(slot.release());  // the library's until it calls back
}

void ZooKeeperClient::submit(const ZooKeeperRequest& request,
                             const std::shared_ptr<ZooKeeperBatch>& batch, std::size_t index) {
  using Kind = ZooKeeperRequest::Kind;
  if (request.kind == Kind::multi) return submit_multi(request, batch, index);
  const LibZooKeeper& lib = libzookeeper();
  const char* const path = request.path.c_str();
  const auto length = static_cast<int>(request.data.size());
  const Rights rights(has_login());
  auto slot = std::make_unique<ZooKeeperBatch::Slot>(ZooKeeperBatch::Slot{batch, index});
  int code = ZOK;
  switch (request.kind) {
    case Kind::get:
      code = lib.zoo_aget(handle_, path, 0, ZooKeeperBatch::got_data, slot.get());
      break;
    case Kind::get_and_watch:
      code = lib.zoo_awget(handle_, path, ZooKeeperWatches::call, watches_.get(),
                           ZooKeeperBatch::got_data, slot.get());
      break;
    case Kind::get_children:
      code = lib.zoo_aget_children2(handle_, path, 0, ZooKeeperBatch::got_names, slot.get());
      break;
    case Kind::set:
      code = lib.zoo_aset(handle_, path, request.data.data(), length, -1, ZooKeeperBatch::got_stat,
                          slot.get());
      break;
    case Kind::create:
      code = lib.zoo_acreate(handle_, path, request.data.data(), length, &rights.list, 0,
                             ZooKeeperBatch::created, slot.get());
      break;
    case Kind::multi:
      break;
  }
  if (code != ZOK) {
    ZooKeeperBatch::done(code, slot.release());
    return;
  }
  static_cast<void>(slot.release());  // the library's until it calls back
}

std::vector<ZooKeeperReply> ZooKeeperClient::ask(const std::vector<ZooKeeperRequest>& requests,
                                                 const CallOptions& call_options) {
  connect(call_options);
  const auto batch = std::make_shared<ZooKeeperBatch>();
  batch->pending = requests.size();
  batch->replies.resize(requests.size(), ZooKeeperReply::of(ZCONNECTIONLOSS));
  for (std::size_t i = 0; i < requests.size(); ++i) submit(requests[i], batch, i);
  const Deadline given_up = later(BootClock::now(), longest_try);
  bool told = false;
  while (batch->pending > 0 && is_open()) {
    const bool in_time = step(std::min(given_up, call_options.deadline), call_options);
    if (!std::exchange(told, true) && call_options.sent != nullptr) call_options.sent->raise();
    if (batch->is_too_large()) {
      drop_connection();
      throw AnswersTooLarge(ErrorKind::unavailable, shown_ + ": it sent more than dlock takes");
    }
    if (batch->pending == 0) break;
    if (BootClock::now() >= call_options.deadline) {
      // What is under way would be answered to nobody, and hold up what comes after it.
      drop_connection();
      throw_unavailable(shown_ + ": did not answer in time");
    }
    if (!in_time) drop_connection();
  }
  return batch->replies;
}

std::vector<ZooKeeperReply> ZooKeeperClient::ask_until_answered(
    const std::vector<ZooKeeperRequest>& requests, const CallOptions& call_options,
    Deadline& sent) {
  while (true) {
    connect(call_options);
    sent = BootClock::now();
    auto replies = ask(requests, call_options);
    const bool lost = std::any_of(replies.begin(), replies.end(),
                                  [](const ZooKeeperReply& reply) { return is_lost(reply.code); });
    if (!lost) return replies;
    if (BootClock::now() >= call_options.deadline) refuse_lost();
  }
}

void ZooKeeperClient::refuse_lost() const {
  throw_unavailable(shown_ + ": the connection was lost");
}

bool ZooKeeperClient::await_change(const std::string& path, Deadline until, int cancel_fd) {
  while (watches_->changed.erase(path) == 0) {
    if (!is_open()) throw_unavailable(shown_ + ": the connection was lost");
    if (BootClock::now() >= until) return false;
    step(until, {until, cancel_fd});
  }
  return true;
}

void ZooKeeperClient::refuse(int code, const std::string& doing) const {
  const std::string said = shown_ + ": cannot " + doing + ": ";
  if (code == ZNOAUTH) {
    throw Error(ErrorKind::denied,
                said + (has_login() ? "the password is wrong, or the user has no right to: check "
                                      "both, or name another chroot"
                                    : "no right to: name a user as in zk://USER:PASSWORD@HOST, or "
                                      "another chroot"),
                Cause::acl);
  }
  if (code == ZAUTHFAILED) {
    throw Error(ErrorKind::denied, said + "the login failed", Cause::password_wrong);
  }
  throw_unavailable(said + escaped(libzookeeper().zerror(code)), Cause::other_reply);
}

}  // namespace dlock
