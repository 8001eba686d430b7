#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "simulator/simulated_node_clients.hpp"

namespace dlock::sim {

/// One request on its way.
struct Task {
  std::uint64_t number = 0;
  NodeRequest request;
  Deadline deadline{};
  bool is_release() const { return std::holds_alternative<Release>(request); }
};

/// Does the tasks of one process for one node, one after the other. It manages the link, the
/// requests on earlier links that may still arrive, and the quarantine of a restarted server.
class SimulatedNodeWorker final : public LinkEnd,
                                  public std::enable_shared_from_this<SimulatedNodeWorker> {
 public:
  SimulatedNodeWorker(Process& process, std::deque<Unheard>& inbox, Network& network,
                      Server& server, std::size_t client, std::size_t node);

  void post(Task task);
  /// The client goes: pending releases are still sent.
  void leave();

  void heard(std::uint64_t link, std::uint64_t request, const Said& said) override;
  void told(std::uint64_t link, const Message& message) override;
  void broken(std::uint64_t link) override;

 private:
  /// The reply that the current task waits for.
  enum class Step { answer, record_process, release };

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
  std::size_t node_;
  bool left_ = false;

  std::shared_ptr<Link> link_;
  std::uint64_t latest_ = 0;  ///< the number of the last link
  std::deque<Task> tasks_;
  std::optional<Task> current_;
  Step step_ = Step::answer;
  bool tried_again_ = false;
  std::uint64_t requests_ = 0;  ///< the number of the last one, which is awaited
  std::map<std::uint64_t, Token> votes_under_way_;  ///< by request
  Deadline sent_{};                                 ///< when the current request went out
  std::optional<Said> doubtful_;  ///< an answer by a process that was not recorded
  /// The links on which requests that record a hold first went out.
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
