#include "quorum/node_threads.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/thread.hpp"

namespace dlock {
namespace {

struct Task {
  std::uint64_t number = 0;
  NodeRequest request;
  Deadline deadline{};
  bool is_release() const { return std::holds_alternative<Release>(request); }
};

/// The claim that has queued up and about which the node may send messages; nothing if none has.
std::optional<Claim> subject_of_messages(const Task& task, const Response& response) {
  const auto* vote = std::get_if<Vote>(&task.request);
  const auto* answer = std::get_if<Answer>(&response);
  if (vote == nullptr || !vote->ask.wait || answer == nullptr) return std::nullopt;
  const auto* refusal = std::get_if<Refusal>(answer);
  if (refusal == nullptr || refusal->why != Refusal::Reason::held) return std::nullopt;
  return vote->claim;
}

struct Perform {
  Member& member;
  const CallOptions& call_options;
  Response operator()(const Vote& vote) const {
    return member.acquire(vote.claim, {vote.ask.wait, vote.ask.ticket, false, vote.proposal},
                          call_options);
  }
  Response operator()(const Renewal& renewal) const {
    return member.renew(renewal.claim, renewal.terms, call_options);
  }
  Response operator()(const Rejoining& rejoining) const {
    return Renewed{member.rejoin(rejoining.claim, rejoining.fence, call_options)};
  }
  Response operator()(const Release& release) const {
    return member.release(release.claim, release.how, call_options);
  }
  Response operator()(const MemberCall& call) const { return call(member, call_options); }
};

}  // namespace

/// How long a node that has answered before may take to confirm its releases. The process should
/// not exit earlier: a server that cannot reply to a connection drops its unread requests.
constexpr milliseconds time_to_confirm{20};
/// How long sending a release to a node that never answered may take.
constexpr milliseconds time_to_send{5};

/// One node, its thread, and the tasks of the thread.
class ThreadedNodeClients::NodeWorker {
 public:
  NodeWorker(std::size_t node, std::unique_ptr<Member> member, ThreadedNodeClients& clients)
      : name_(member->name()), node_(node), member_(std::move(member)), clients_(clients) {}

  /// A worker without a thread may share its events with forked processes, and must not raise them.
  ~NodeWorker() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard guard(mutex_);
      leave_.raise();
      wake_.raise();
    }
    thread_.join();
  }

  void post(Task task) {
    const std::lock_guard guard(mutex_);
    if (task.is_release()) {
      ++releases_;
      all_released_.clear();
      all_sent_.clear();
    }
    if (!does_upkeep_ || !is_upkeep(task.request)) wake_.raise();
    tasks_.push_back(std::move(task));
    if (thread_.joinable()) return;
    thread_ = start_thread([this] { work(); });
  }

  const std::string& name() const { return name_; }
  bool has_sent_releases() const { return all_sent_.raised(); }
  int connection() const { return connection_; }

  /// Waits until the node has confirmed all releases or, if it never answered, until they have been
  /// sent. The time for this began at `since` for all nodes.
  void await_releases(Deadline since) {
    const bool answers = answers_;
    pollfd fds[] = {{all_released_.fd(), POLLIN, 0}, {answers ? -1 : all_sent_.fd(), POLLIN, 0}};
    if (releases_ > 0) poll_until(fds, later(since, answers ? time_to_confirm : time_to_send));
  }

 private:
  void work() {
    while (true) {
      std::optional<Task> task;
      try {
        task = next();
        if (task) {
          do_task(*task);
        } else if (leave_.raised()) {
          return;
        } else if (listening_) {
          listen();
        } else {
          pollfd fds[] = {{wake_.fd(), POLLIN, 0}};
          poll_until(fds, never);
        }
      } catch (const std::exception& error) {
        listening_.reset();
        fail(task ? task->number : 0, error.what());
      }
      if (task && task->is_release()) count_released();
    }
  }

  /// A failure that cannot even be reported counts as no answer.
  void fail(std::uint64_t number, const char* why) try {
    put_reply(number, Error(ErrorKind::host_refused, why));
  } catch (const std::exception&) {
  }

  void count_released() {
    const std::lock_guard guard(mutex_);
    if (--releases_ == 0) all_released_.raise();
  }

  std::optional<Task> next() {
    const std::lock_guard guard(mutex_);
    // Nobody waits for requests other than releases any more.
    while (leave_.raised() && !tasks_.empty() && !tasks_.front().is_release()) {
      tasks_.pop_front();
    }
    does_upkeep_ = !tasks_.empty() && is_upkeep(tasks_.front().request);
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool is_overtaken = std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& later) {
      return !does_upkeep_ || !is_upkeep(later.request);
    });
    if (!is_overtaken && !leave_.raised()) wake_.clear();
    return task;
  }

  void do_task(const Task& task) {
    // Any request ends the subscription at the node.
    listening_.reset();
    try {
      if (!task.is_release() && BootClock::now() >= task.deadline) {
        throw Error(ErrorKind::unavailable, name_ + ": no answer in time");
      }
      CallOptions call_options{task.deadline, wake_.fd()};
      if (task.is_release()) {
        call_options.cancel_fd = leave_.fd();
        if (releases_ == 1) call_options.sent = &all_sent_;
      }
      Response response = std::visit(Perform{*member_, call_options}, task.request);
      for (const int socket : member_->connections()) connection_ = socket;
      listening_ = subject_of_messages(task, response);
      put_reply(task.number, std::move(response));
      answers_ = true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) return;
      put_reply(task.number, error.reworded(error.what()));  // no two threads share its text
    }
  }

  void listen() {
    try {
      const Wake wake = member_->sleep(*listening_, never, wake_.fd());
      if (wake.why != Wake::Reason::interrupted) put_reply(0, wake);
    } catch (const Error& error) {
      listening_.reset();
      put_reply(0, error);
    }
  }

  void put_reply(std::uint64_t number, Response response) {
    clients_.put({node_, number, member_->standing(), std::move(response)});
  }

  std::string name_;
  std::size_t node_;
  std::unique_ptr<Member> member_;
  ThreadedNodeClients& clients_;
  Event wake_;
  Event leave_;
  std::mutex mutex_;
  std::deque<Task> tasks_;             ///< guarded by mutex_
  bool does_upkeep_ = false;           ///< the task under way is upkeep; guarded by mutex_
  std::atomic<int> releases_ = 0;      ///< releases posted but not done; changed with mutex_ held
  std::atomic<bool> answers_ = false;  ///< the node has answered something
  std::atomic<int> connection_ = -1;   ///< the socket that brought the last answer
  Event all_released_;
  Event all_sent_;
  std::optional<Claim> listening_;  ///< used only by the thread
  std::thread thread_;
};

ThreadedNodeClients::ThreadedNodeClients(OpenMembers open) : open_(std::move(open)) {
  this->open();
}

ThreadedNodeClients::~ThreadedNodeClients() { leave(); }

void ThreadedNodeClients::leave() {
  const auto since = BootClock::now();
  for (const auto& worker : workers_) worker->await_releases(since);
  workers_.clear();
}

void ThreadedNodeClients::open() {
  std::vector<std::unique_ptr<NodeWorker>> workers;
  for (auto& member : open_()) {
    workers.push_back(std::make_unique<NodeWorker>(workers.size(), std::move(member), *this));
  }
  leave();
  replies_.clear();
  arrived_.clear();
  workers_ = std::move(workers);
}

void ThreadedNodeClients::begin_anew() { open(); }

std::string ThreadedNodeClients::name(std::size_t node) const { return workers_[node]->name(); }

std::uint64_t ThreadedNodeClients::ask(std::size_t node, NodeRequest request, Deadline deadline) {
  workers_[node]->post({++requests_, std::move(request), deadline});
  return requests_;
}

bool ThreadedNodeClients::has_sent_releases(std::size_t node) const {
  return workers_[node]->has_sent_releases();
}

std::vector<int> ThreadedNodeClients::connections() const {
  std::vector<int> all;
  for (const auto& worker : workers_) all.push_back(worker->connection());
  return all;
}

/// Called by the nodes' threads.
void ThreadedNodeClients::put(NodeReply reply) {
  const std::lock_guard guard(mutex_);
  replies_.push_back(std::move(reply));
  if (replies_.size() == 1) arrived_.raise();
}

std::optional<NodeReply> ThreadedNodeClients::hear(Deadline until, int cancel_fd) {
  pollfd fds[] = {{arrived_.fd(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
  while (true) {
    {
      const std::lock_guard guard(mutex_);
      if (!replies_.empty()) {
        NodeReply first = std::move(replies_.front());
        replies_.pop_front();
        if (replies_.empty()) arrived_.clear();
        return first;
      }
    }
    if (poll_until(fds, until) == 0) return std::nullopt;
    if (fds[1].revents != 0) throw_interrupted();
  }
}

}  // namespace dlock
