#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "http/http_client.hpp"
#include "http/http_server.hpp"
#include "lock/grant.hpp"
#include "s3/aws_credentials.hpp"

namespace dlock {

/// A bucket, and where it is.
struct S3Place {
  Endpoint server;
  std::string region;
  std::string bucket;
  std::string folder;  ///< all keys of dlock begin with it and a slash
  bool bucket_in_path = false;
};

struct S3Request {
  std::string method;
  std::string key;      ///< empty: the bucket itself
  std::string query{};  ///< its parameters in the order of their names, as they are signed
  std::string body{};
  std::string condition{};  ///< a field of the header
};

/// The statuses that requests of dlock get, and that are not errors.
constexpr long s3_ok = 200, s3_not_found = 404, s3_conflict = 409, s3_precondition_failed = 412;

/// Sends requests to one bucket. One thread uses it at a time.
class S3Client {
 public:
  S3Client(S3Place place, std::string shown)
      : place_(std::move(place)),
        shown_(std::move(shown)),
        credentials_(place_.region),
        server_{place_.server, place_.bucket_in_path ? "/" + place_.bucket + "/" : "/"},
        http_(place_.server.tls) {}

  /// Sends all requests at once. A PUT is sent once; Error{unavailable} means that it may have been
  /// done. Throws for all statuses but those above, and for a 404 that is not the object's.
  std::vector<HttpCall> send(const std::vector<S3Request>& requests,
                             const CallOptions& call_options);
  HttpCall send_one(const S3Request& request, const CallOptions& call_options) {
    return std::move(send({request}, call_options).front());
  }

  /// The store's clock in its last answer.
  const std::optional<DatedAnswer>& last_answer() const { return last_answer_; }
  const S3Place& place() const { return place_; }
  const AwsCredentials& credentials(const CallOptions& call_options) {
    return credentials_.current(call_options);
  }
  void close() { http_.close(); }
  const std::string& name() const { return shown_; }

 private:
  HttpCall signed_call(const S3Request& request, const AwsCredentials& own) const;
  [[noreturn]] void refuse(const HttpCall& call);

  const S3Place place_;
  const std::string shown_;
  AwsCredentialChain credentials_;
  HttpServer server_;
  HttpClient http_;
  std::optional<DatedAnswer> last_answer_;
};

}  // namespace dlock
