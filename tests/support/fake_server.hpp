#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "base/wait.hpp"
#include "support/loop_thread.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

/// What a FakeServer does next on a connection.
struct Step {
  enum class Then { go_on, close, reset, flood };
  std::string bytes;
  Then then = Then::go_on;
};

Step say(std::string bytes);
Step silence();
/// Half a reply, say, and then the end of the stream.
Step say_and_close(std::string bytes);
Step hang_up();
/// The same with RST where the connection is TCP.
Step say_and_reset(std::string bytes);
/// `bytes`, then the letter x without end, as fast as the client reads.
Step flood(std::string bytes);

/// A server that answers what the test says, right or wrong, in a thread of its own. Every whole
/// request gets one step, however many came in one write; what is not RESP counts as one request.
class FakeServer {
 public:
  /// Called in the server's thread with the words of each request.
  using Script = std::function<Step(const std::vector<std::string>& words)>;

  /// `greeting` is done as soon as a client has connected.
  explicit FakeServer(Script script, bool tcp = false, Step greeting = silence());
  /// Each connection gets these in turn; the last again and again.
  explicit FakeServer(std::vector<Step> steps, bool tcp = false, Step greeting = silence());

  std::string url() const { return address_.url(); }
  const Address& address() const { return address_; }
  int connections();
  /// All requests so far, in the order they came.
  std::vector<std::vector<std::string>> requests();
  /// Bytes the clients' systems have taken.
  std::size_t bytes_sent();

 private:
  struct Client {
    Fd fd;
    std::size_t answered = 0;
    std::string received;
    std::string to_send;
    Step::Then then = Step::Then::go_on;
    bool gone = false;
  };
  using Choice = std::function<Step(std::size_t index, const std::vector<std::string>& words)>;

  FakeServer(Choice choose, bool tcp, Step greeting, int);
  Deadline watch(std::vector<pollfd>& fds) const;
  void tick();
  void greet(Fd fd);
  void receive(Client& client);
  void answer(Client& client);
  void send_on(Client& client);

  TempDir dir_;
  Address address_;
  Fd listener_;
  Choice choose_;
  Step greeting_;
  std::list<Client> clients_;
  int connections_ = 0;
  std::size_t bytes_sent_ = 0;
  std::vector<std::vector<std::string>> requests_;
  LoopThread thread_;  ///< last, as it uses all of the above
};

}  // namespace dlock::test
