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

struct HttpAddress {
  std::string url;
  std::string connect_to{};  ///< `::HOST:PORT` if it differs from the URL's
  /// `HOST:PORT:ADDRESS,...` of the host to connect to; empty: libcurl looks it up, without a
  /// deadline.
  std::string resolved{};
};

/// HttpCall::trouble of a call whose answer is too large.
inline constexpr char too_large_answer[] = "an answer that is too large";

/// One POST and its result.
struct HttpCall {
  HttpAddress to;
  std::string body;
  bool once = false;          ///< do not send it again if a kept connection ends without an answer
  long status = 0;            ///< 0: no answer
  std::string answer{};       ///< its body
  std::string trouble{};      ///< why there is no answer, for people
  CURLcode code = CURLE_OK;   ///< the same for the program
  bool too_large = false;     ///< the answer is longer than the limit
  bool may_have_come = true;  ///< the server may have received the request
};

/// Sends POSTs over HTTP/1.1 on kept connections, and reads one endless answer besides. One thread
/// uses it at a time.
class HttpClient {
 public:
  explicit HttpClient(std::optional<TlsSettings> tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sets the Authorization header of all later requests; empty: none. Closes the stream, which was
  /// opened with the previous header.
  void set_authorization(const std::string& value);

  /// Sends all at once, each on a connection of its own, and returns when none is under way. Those
  /// without an answer at the deadline say so; one that has more than 2 MiB is too large. Throws
  /// Error{interrupted}, and {usage} about files that the settings of TLS name.
  void post(std::vector<HttpCall>& calls, const CallOptions& call_options);

  /// Opens a stream of lines in place of the previous one.
  void open_stream(const HttpAddress& to, const std::string& body);
  bool has_stream() const { return stream_ != nullptr; }
  void close_stream();
  enum class StreamEnd { due, interrupted, broken };
  /// The next line of the stream.
  std::variant<std::string, StreamEnd> next_line(Deadline until, int cancel_fd);

  /// Closes all connections.
  void close();

 private:
  struct Transfer;

  /// `time` is the longest time to connect.
  std::unique_ptr<Transfer> begin(const HttpAddress& to, std::string body, bool once,
                                  milliseconds time);
  void encrypt(CURL* handle);
  void end(std::unique_ptr<Transfer>& transfer);
  /// Lets libcurl work; returns true if a transfer has ended.
  bool work();
  /// Waits for the network; returns false if `cancel_fd` interrupts.
  bool wait(Deadline until, int cancel_fd);
  CURLM* multi();

  std::optional<TlsSettings> tls_;
  bool files_checked_ = false;  ///< the files in tls_
  CurlMultiPtr multi_;
  CurlListPtr headers_;
  std::string authorization_;
  std::vector<Transfer*> under_way_;
  std::unique_ptr<Transfer> stream_;
};

}  // namespace dlock
