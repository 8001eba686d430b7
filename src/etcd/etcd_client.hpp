#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "etcd/etcd_json.hpp"
#include "http/http_client.hpp"
#include "http/http_server.hpp"

namespace dlock {

/// A request to the gateway: the path after `/v3/`, and its fields.
struct EtcdRequest {
  std::string path;
  nlohmann::json fields = nlohmann::json::object();
};

/// A client of one etcd cluster. It asks one member until that member fails, then the next. One
/// thread uses it at a time.
class EtcdClient {
 public:
  EtcdClient(const std::vector<Endpoint>& servers, std::string shown);

  /// Sends all requests at once. An answer may be an error of etcd. After "unavailable", or an
  /// answer that is not etcd's, ask() sends them again, to other servers, until the deadline.
  std::vector<EtcdAnswer> ask(const std::vector<EtcdRequest>& requests,
                              const CallOptions& call_options);
  /// Like ask(), but throws Error{unavailable} if the request may have been done, rather than send
  /// it a second time.
  EtcdAnswer ask_once(const EtcdRequest& request, const CallOptions& call_options);
  /// Sends one request; throws if the answer is an error.
  nlohmann::json done(const EtcdRequest& request, const CallOptions& call_options);
  /// Throws the Error for an error answer.
  [[noreturn]] void refuse(const EtcdAnswer& failed) const;

  /// Opens a stream of answers to `body` at the current server.
  void open_stream(const std::string& path, const std::string& body);
  bool has_stream() const { return http_.has_stream() && stream_server_ == current_; }
  void close_stream() { http_.close_stream(); }
  std::variant<std::string, HttpClient::StreamEnd> next_line(Deadline until, int cancel_fd);

  void close() { http_.close(); }
  /// The name for messages, without credentials.
  const std::string& name() const { return shown_; }

 private:
  using Answers = std::vector<EtcdAnswer>;
  /// Why a server did not answer.
  struct Trouble {
    Error error;
    bool is_electing = false;  ///< the server answered that it is unavailable
  };

  void log_in(const CallOptions& call_options);
  Answers ask_logged_in(const std::vector<EtcdRequest>& requests, bool once,
                        const CallOptions& call_options);
  Answers ask_servers(const std::vector<EtcdRequest>& requests, bool once,
                      const CallOptions& call_options);
  Deadline try_until(std::size_t tries, Deadline deadline) const;
  std::variant<Answers, Trouble> try_once(const std::vector<EtcdRequest>& requests, bool once,
                                          const CallOptions& call_options);
  Trouble trouble_of(const HttpCall& call, const std::optional<EtcdAnswer>& answer) const;
  Trouble pass_over(Trouble trouble);
  void next_server() { current_ = (current_ + 1) % servers_.size(); }
  std::string server_name() const;

  std::vector<HttpServer> servers_;
  std::string shown_;
  HttpClient http_;
  std::size_t current_ = 0;
  std::size_t stream_server_ = 0;
  bool logged_in_ = false;
};

}  // namespace dlock
