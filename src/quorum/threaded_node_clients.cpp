#include "quorum/threaded_node_clients.hpp"

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

/// The queued claim that later messages of the member may be about, if any.
std::optional<Claim> subject_of_news(const Task& task, const Response& response) {
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
    return member.vote(vote.claim, vote.ask, vote.proposal, call_options);
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
  Response operator()(const HolderQuery& query) const {
    return member.look_at_holders(query.key, call_options);
  }
  Response operator()(const Eviction& eviction) const {
    return member.evict_seen(eviction.key, eviction.seen, eviction.by, call_options);
  }
  Response operator()(const Inspection& inspection) const {
    return member.inspect(inspection.query, call_options);
  }
  Response operator()(const FenceRecord& record) const {
    return member.record_max(record.resource, record.fence, call_options);
  }
};

}  // namespace

/// How long a member that usually answers has to confirm its releases. The process should not exit
/// earlier: a server that cannot send to a connection drops what it has not read from it yet.
constexpr milliseconds a_moment{20};
/// The least time for sending a release to a member that never answered.
constexpr milliseconds time_to_send{2};

/// How long a thread may wait for a processor on a busy machine; this says nothing about its
/// server.
constexpr milliseconds longest_for_a_processor{1000};

class ThreadedNodeClients::ReplyBox {
 public:
  void put(NodeReply heard) {
    const std::lock_guard guard(mutex_);
    heard_.push_back(std::move(heard));
    if (heard_.size() == 1) arrived_.raise();
  }
  std::optional<NodeReply> take() {
    const std::lock_guard guard(mutex_);
    if (heard_.empty()) return std::nullopt;
    NodeReply first = std::move(heard_.front());
    heard_.pop_front();
    if (heard_.empty()) arrived_.clear();
    return first;
  }
  int fd() const { return arrived_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<NodeReply> heard_;
  Event arrived_;
};

/// One member, its thread, and the tasks of the thread.
class ThreadedNodeClients::NodeWorker {
 public:
  NodeWorker(std::size_t place, std::unique_ptr<Member> member, ReplyBox& replies)
      : place_(place), member_(std::move(member)), replies_(replies) {}

  /// An unused worker shares its events with every process forked since, and must not raise them.
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
      if (releases_++ == 0) {
        released_since_ = BootClock::now();
        begun_.clear();
      }
      all_released_.clear();
      all_sent_.clear();
    }
    tasks_.push_back(std::move(task));
    wake_.raise();
    if (thread_.joinable()) return;
    thread_ = start_thread([this] { work(); });
  }

  bool has_sent_releases() const { return all_sent_.raised(); }

  /// Waits until the member has done all releases. If it never answered, this waits only until they
  /// are sent, and for that no longer than the others took.
  void await_releases(Deadline until) {
    pollfd fds[] = {{all_released_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    if (!any_release()) return;
    if (!has_answered()) {
      const auto took = BootClock::now() - released_since_;
      fds[1].fd = begun_.fd();
      poll_until(fds, later(BootClock::now(), longest_for_a_processor));
      const auto now = BootClock::now();
      fds[1].fd = all_sent_.fd();
      until = std::max(std::min(until, now + took), later(now, time_to_send));
    }
    poll_until(fds, until);
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

  void count_released() {
    const std::lock_guard guard(mutex_);
    if (--releases_ == 0) all_released_.raise();
  }

  /// A failure that cannot even be reported counts as no answer.
  void fail(std::uint64_t number, const char* why) {
    try {
      say(number, Error(ErrorKind::host_refused, why));
    } catch (const std::exception&) {
    }
  }

  std::optional<Task> next() {
    const std::lock_guard guard(mutex_);
    // Nobody waits for the other requests any more.
    while (leave_.raised() && !tasks_.empty() && !tasks_.front().is_release()) {
      const auto* vote = std::get_if<Vote>(&tasks_.front().request);
      if (vote != nullptr) member_->note_dropped(vote->claim.key, vote->claim.token);
      tasks_.pop_front();
    }
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    if (tasks_.empty() && !leave_.raised()) wake_.clear();
    return task;
  }

  void do_task(const Task& task) {
    // Any request ends the subscription at the member.
    listening_.reset();
    try {
      if (!task.is_release() && BootClock::now() >= task.deadline) {
        throw Error(ErrorKind::unavailable, member_->name() + ": no answer in time");
      }
      const int cancel_fd = task.is_release() ? leave_.fd() : wake_.fd();
      if (task.is_release()) begun_.raise();
      const CallOptions call_options{task.deadline, cancel_fd,
                                     is_last_release(task) ? &all_sent_ : nullptr};
      Response response = std::visit(Perform{*member_, call_options}, task.request);
      if (auto subject = subject_of_news(task, response)) listening_ = std::move(subject);
      say(task.number, std::move(response));
      const std::lock_guard guard(mutex_);
      answers_ = true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::interrupted) say(task.number, error);
    }
  }

  bool any_release() {
    const std::lock_guard guard(mutex_);
    return releases_ > 0;
  }

  bool has_answered() {
    const std::lock_guard guard(mutex_);
    return answers_;
  }

  bool is_last_release(const Task& task) {
    const std::lock_guard guard(mutex_);
    return task.is_release() && releases_ == 1;
  }

  void listen() {
    try {
      const Wake wake = member_->sleep(*listening_, never, wake_.fd());
      if (wake.why != Wake::Reason::interrupted) say(0, wake);
    } catch (const Error& error) {
      listening_.reset();
      say(0, error);
    }
  }

  void say(std::uint64_t number, Response response) {
    replies_.put({place_, number, member_->standing(), std::move(response)});
  }

  std::size_t place_;
  std::unique_ptr<Member> member_;
  ReplyBox& replies_;
  Event wake_;
  Event leave_;
  std::mutex mutex_;
  std::deque<Task> tasks_;     ///< guarded by mutex_
  int releases_ = 0;           ///< guarded by mutex_: posted and not done
  Deadline released_since_{};  ///< when the first of them was posted
  bool answers_ = false;       ///< guarded by mutex_: it has answered something
  Event all_released_;
  Event begun_;  ///< the thread has begun the first of them
  Event all_sent_;
  std::optional<Claim> listening_;  ///< the thread's
  std::thread thread_;
};

ThreadedNodeClients::ThreadedNodeClients(OpenMembers open) : open_(std::move(open)) {
  this->open();
}

ThreadedNodeClients::~ThreadedNodeClients() { leave(); }

void ThreadedNodeClients::leave() {
  const auto until = later(BootClock::now(), a_moment);
  for (const auto& worker : workers_) worker->await_releases(until);
  workers_.clear();
}

void ThreadedNodeClients::open() {
  auto replies = std::make_unique<ReplyBox>();
  std::vector<std::string> names;
  std::vector<std::unique_ptr<NodeWorker>> workers;
  for (auto& member : open_()) {
    names.push_back(member->name());
    workers.push_back(std::make_unique<NodeWorker>(workers.size(), std::move(member), *replies));
  }
  leave();
  replies_ = std::move(replies);
  names_ = std::move(names);
  workers_ = std::move(workers);
}

std::uint64_t ThreadedNodeClients::ask(std::size_t member, NodeRequest request, Deadline deadline) {
  const auto number = ++inquiries_;
  workers_[member]->post({number, std::move(request), deadline});
  return number;
}

bool ThreadedNodeClients::has_sent_releases(std::size_t member) const {
  return workers_[member]->has_sent_releases();
}

std::optional<NodeReply> ThreadedNodeClients::hear(Deadline until, int cancel_fd) {
  pollfd fds[] = {{replies_->fd(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
  while (true) {
    if (auto heard = replies_->take()) return heard;
    if (poll_until(fds, until) == 0) return std::nullopt;
    if (fds[1].revents != 0) throw_interrupted();
  }
}

}  // namespace dlock
