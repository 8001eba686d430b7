#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "simulator/simulated_node_clients.hpp"

namespace dlock::sim {

/// One inquiry on its way.
struct Task {
  std::uint64_t number = 0;
  NodeRequest request;
  Deadline deadline{};
  bool is_release() const { return std::holds_alternative<Release>(request); }
};

/// What one process does with one member, one task after the other: its link, what may still come
/// late of what was asked on earlier ones, and the guard of a server that was restarted.
class SimulatedNodeWorker final : public LinkEnd,
                                  public std::enable_shared_from_this<SimulatedNodeWorker> {
 public:
  SimulatedNodeWorker(Process& process, std::deque<Unheard>& inbox, Network& network,
                      Server& server, std::size_t client, std::size_t member);

  void post(Task task);
  /// The client goes: what is to be released is still sent.
  void leave();

  void heard(std::uint64_t link, std::uint64_t request, const Said& said) override;
  void told(std::uint64_t link, const Message& message) override;
  void broken(std::uint64_t link) override;

 private:
  /// What the current task waits for.
  enum class Step { answer, record_process, give_back };

  void begin_next();
  void begin(Task task);
  void send_current();
  void send(Request request);
  Request request_of(const NodeRequest& request);
  void timed_out(std::uint64_t number);
  void break_off();
  void conclude(Response response);
  void fail(const char* why);
  void answered(const Said& said);
  void note_answered(std::uint64_t link, std::uint64_t request);
  Response response_of(const Said& said) const;
  Wake wake_of(const Message& message) const;
  void say(std::uint64_t number, Response response);
  bool may_come_late(const Token& token) const;
  void close_link(bool silently = false);

  Process& process_;
  std::deque<Unheard>& inbox_;
  Network& network_;
  Server& server_;
  std::size_t client_;
  std::size_t member_;
  bool left_ = false;

  std::shared_ptr<Link> link_;
  std::uint64_t latest_ = 0;  ///< the number of the last link
  std::deque<Task> tasks_;
  std::optional<Task> current_;
  Step step_ = Step::answer;
  bool tried_again_ = false;
  std::uint64_t requests_ = 0;  ///< the number of the last, which is the one awaited
  std::map<std::uint64_t, Token> votes_under_way_;  ///< by request
  Deadline sent_{};                                 ///< the current task, first
  std::optional<Said> doubtful_;  ///< an answer given by a process that was not recorded
  /// What records a hold, and the link it went out on first.
  std::map<Token, std::uint64_t> unanswered_;
  std::optional<Token> listening_;
  Standing standing_;
  struct Dated {
    Deadline sent{};
    microseconds server_clock{0};
    std::uint64_t link = 0;
  };
  Dated last_answer_;
};

}  // namespace dlock::sim
