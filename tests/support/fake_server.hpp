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

/// The next action of a FakeServer on a connection.
struct Step {
  enum class Then { go_on, close, reset, flood };
  std::string bytes;
  Then then = Then::go_on;
};

Step say(std::string bytes);
/// Says an answer of HTTP with this body.
Step say_http(const std::string& body, const std::string& status = "200 OK");
Step silence();
/// For example, half a reply and then the end of the stream.
Step say_and_close(std::string bytes);
Step hang_up();
/// The same with RST if the connection is TCP.
Step say_and_reset(std::string bytes);
/// Sends `bytes`, then the letter x without end, as fast as the client reads.
Step flood(std::string bytes);

/// A server whose answers, right or wrong, come from the test; it runs in its own thread. Every
/// whole request gets one step, even if several came in one write. Input that is neither RESP nor
/// HTTP counts as one request.
class FakeServer {
 public:
  /// The server's thread calls it with the words of each request.
  using Script = std::function<Step(const std::vector<std::string>& words)>;

  /// The server performs `greeting` as soon as a client has connected.
  explicit FakeServer(Script script, bool tcp = false, Step greeting = silence());
  /// Each connection gets these steps in turn; the last one repeats.
  explicit FakeServer(std::vector<Step> steps, bool tcp = false, Step greeting = silence());

  std::string url() const { return address_.url(); }
  const Address& address() const { return address_; }
  int connections();
  /// All requests so far, in the order of arrival.
  std::vector<std::vector<std::string>> requests();
  /// The number of bytes that the kernels of the clients have received.
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
  LoopThread thread_;  ///< last, as the thread uses all members above
};

}  // namespace dlock::test
