#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {

struct HttpAddress {
  std::string url;
  std::string connect_to{};  ///< `::HOST:PORT` if it differs from the URL's
  /// `HOST:PORT:ADDRESS,...` of the host to connect to; empty: libcurl looks it up, without a
  /// deadline.
  std::string resolved{};
};

/// The addresses of `host` in the form of HttpAddress::resolved, looked up by the deadline. Throws
/// Error{unavailable} for a host without an address.
std::string resolved_addresses(const std::string& host, int port, const CallOptions& call_options);

/// One request, by default a POST of JSON, and its result.
struct HttpCall {
  enum class End {
    answered,
    certificate_refused,  ///< or a TLS file is unusable: an administrator must fix that
    failed,
  };

  HttpAddress to;
  std::string body;
  std::string method = "POST";
  std::vector<std::string> fields{};  ///< of the request's header, each `Name: value`
  /// `aws:amz:REGION:SERVICE` and `KEY_ID:SECRET`: libcurl signs the request for AWS (signature
  /// version 4). Empty: no signature.
  std::string signed_for{};
  std::string signed_by{};
  bool once = false;          ///< do not send it again if a kept connection ends without an answer
  End end = End::failed;      ///< this and all that follows is the result
  std::string trouble{};      ///< why there is no answer, for people
  bool may_have_come = true;  ///< the server may have received the request
  long status = 0;            ///< of the answer
  std::string answer{};       ///< its body
  std::map<std::string, std::string> answer_fields{};  ///< of its header; names in lower case

  /// A field of the answer's header; empty if it has none of this name.
  std::string answer_field(const std::string& name) const {
    const auto found = answer_fields.find(name);
    return found == answer_fields.end() ? "" : found->second;
  }
  /// The Error for a call that `server` has not answered.
  Error no_answer(const std::string& server) const;
  /// The server's time in the answer, cut off to whole seconds; nothing: it does not tell.
  std::optional<microseconds> date() const;
};

/// Sends requests over HTTP/1.1 with libcurl, on connections that stay open, and reads one endless
/// answer, the stream, at the same time. One thread uses it at a time.
class HttpClient {
 public:
  /// In `tls`, a PEM text may stand in place of a file's name.
  explicit HttpClient(std::optional<TlsSettings> tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sets the Authorization header of all later requests; empty: none. Closes the stream, which was
  /// opened with the previous header.
  void set_authorization(const std::string& value);

  /// Sends all calls, on up to eight connections, and returns when all have ended. A call
  /// fails if it has no answer at the deadline, or an answer of more than 16 MiB. Throws
  /// Error{interrupted}, Error{usage} if a file in the TLS settings is unusable, and
  /// Error{host_refused} without libcurl.
  void send(std::vector<HttpCall>& calls, const CallOptions& call_options);

  /// Opens a stream of lines, the answer to `call`, in place of the previous one.
  void open_stream(const HttpCall& call);
  bool has_stream() const { return stream_ != nullptr; }
  void close_stream();
  enum class StreamEnd { due, interrupted, broken };
  /// The next line of the stream.
  std::variant<std::string, StreamEnd> next_line(Deadline until, int cancel_fd);

  /// Closes all connections.
  void close();

 private:
  struct Transfer;

  /// Lets libcurl work on all transfers.
  void work();
  /// Waits for the network; returns false if `cancel_fd` interrupts.
  bool wait(Deadline until, int cancel_fd);

  std::optional<TlsSettings> tls_;
  bool files_checked_ = false;   ///< whether the files in tls_ were usable once
  bool has_answered_ = false;    ///< a server has answered a call
  std::shared_ptr<void> multi_;  ///< libcurl's handle of all connections
  std::string authorization_;
  std::vector<Transfer*> under_way_;
  std::unique_ptr<Transfer> stream_;
};

}  // namespace dlock
