#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "etcd/libcurl.hpp"

namespace dlock {

/// Where a request goes.
struct HttpAddress {
  std::string url;
  std::string connect_to{};  ///< `::HOST:PORT`, if that is not what the URL names
  /// `HOST:PORT:ADDRESS,...` of the host that is connected to; empty: libcurl looks it up, and
  /// keeps no deadline then.
  std::string resolved{};
};

/// HttpCall::trouble of one that is.
inline constexpr char too_large_answer[] = "an answer that is too large";

/// One POST, and what came of it.
struct HttpCall {
  HttpAddress to;
  std::string body;
  bool once = false;          ///< it is not sent again if a kept connection ends without an answer
  long status = 0;            ///< 0: there was no answer
  std::string answer{};       ///< its body
  std::string trouble{};      ///< why there was no answer, for people
  CURLcode code = CURLE_OK;   ///< the same for programs
  bool too_large = false;     ///< there was an answer, longer than is taken
  bool may_have_come = true;  ///< the server may have the request
};

/// POSTs over HTTP/1.1 on connections that are kept, and one answer without end beside. One thread
/// uses it at a time.
class HttpClient {
 public:
  explicit HttpClient(std::optional<TlsSettings> tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// A header for all that follows; empty: none. Closes the stream, which was asked for under
  /// another one.
  void set_authorization(const std::string& value);

  /// Sends all at once, each on a connection of its own, and returns when none is under way. Those
  /// without an answer at the deadline say so; one that has more than 2 MiB is too large. Throws
  /// Error{interrupted}, and {usage} about files that the settings of TLS name.
  void post(std::vector<HttpCall>& calls, const CallOptions& call_options);

  /// Asks for an answer that comes line by line, in place of the one before.
  void open_stream(const HttpAddress& to, const std::string& body);
  bool has_stream() const { return stream_ != nullptr; }
  void close_stream();
  enum class StreamEnd { due, interrupted, broken };
  /// The next line of it.
  std::variant<std::string, StreamEnd> next_line(Deadline until, int cancel_fd);

  /// Closes all connections.
  void close();

 private:
  struct Transfer;

  /// `time`: the longest that it may take to connect.
  std::unique_ptr<Transfer> begin(const HttpAddress& to, std::string body, bool once,
                                  milliseconds time);
  void encrypt(CURL* handle);
  void end(std::unique_ptr<Transfer>& transfer);
  /// Lets libcurl work; true if something came to its end.
  bool work();
  /// Waits for the network; false if `cancel_fd` interrupts.
  bool wait(Deadline until, int cancel_fd);
  CURLM* multi();

  std::optional<TlsSettings> tls_;
  bool files_checked_ = false;  ///< those of tls_
  CurlMultiPtr multi_;
  CurlListPtr headers_;
  std::string authorization_;
  std::vector<Transfer*> under_way_;
  std::unique_ptr<Transfer> stream_;
};

}  // namespace dlock
