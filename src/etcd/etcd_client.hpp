#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "etcd/etcd_answer.hpp"
#include "etcd/http_client.hpp"

namespace dlock {

/// A request to the gateway: what follows `/v3/`, and its fields.
struct EtcdRequest {
  std::string path;
  nlohmann::json fields = nlohmann::json::object();
};

/// The members of one etcd, of which one is asked until it fails; then the next. One thread uses it
/// at a time.
class EtcdClient {
 public:
  EtcdClient(std::vector<Endpoint> servers, std::string shown);

  enum class Repeat { yes, no };
  /// Asks all at once. Without `Repeat::yes` no request is sent twice: if one may have counted,
  /// this throws Error{unavailable}. The answers may be errors of etcd's, but not that it is
  /// unavailable, and not another product's: then others are asked, until the deadline.
  std::vector<EtcdAnswer> ask(const std::vector<EtcdRequest>& requests, Repeat repeat,
                              const CallOptions& call_options);
  /// One request; throws what an error means.
  nlohmann::json done(const EtcdRequest& request, Repeat repeat, const CallOptions& call_options);
  /// The same; nothing if the answer is too large, so that less may be asked for.
  std::optional<nlohmann::json> done_unless_large(const EtcdRequest& request,
                                                  const CallOptions& call_options);
  /// Throws what an error means to people.
  [[noreturn]] void refuse(const EtcdAnswer& failed) const;

  /// Opens the stream of answers to `body` at the server that is asked now.
  void open_stream(const std::string& path, const std::string& body);
  bool has_stream() const { return http_.has_stream() && stream_server_ == current_; }
  void close_stream() { http_.close_stream(); }
  std::variant<std::string, HttpClient::StreamEnd> next_line(Deadline until, int cancel_fd);

  void close() { http_.close(); }
  /// For messages: without credentials.
  const std::string& name() const { return shown_; }

 private:
  HttpAddress address_of_request(const std::string& path) const;
  void look_up(const CallOptions& call_options);
  void log_in(const CallOptions& call_options);
  Deadline try_until(std::size_t tries, Deadline deadline) const;
  std::optional<std::vector<EtcdAnswer>> try_once(const std::vector<EtcdRequest>& requests,
                                                  Repeat repeat, const CallOptions& call_options);
  void pass_over(const HttpCall& call, const std::optional<EtcdAnswer>& answer);
  void pass_over(const std::string& why, Cause cause, ErrorKind kind = ErrorKind::unavailable);
  void next_server() { current_ = (current_ + 1) % servers_.size(); }
  std::string server_name() const;

  std::vector<Endpoint> servers_;
  /// Of each server: where its name leads, as HttpAddress has it; nothing: it is to be looked up.
  std::vector<std::optional<std::string>> addresses_;
  std::string shown_;
  HttpClient http_;
  std::size_t current_ = 0;
  std::size_t stream_server_ = 0;
  bool logged_in_ = false;
  bool has_answered_ = false;     ///< one of the servers
  std::optional<Error> trouble_;  ///< the last that kept a server from answering
  bool is_electing_ = false;      ///< it answered that it is unavailable
  bool was_too_large_ = false;    ///< its answer
};

}  // namespace dlock
