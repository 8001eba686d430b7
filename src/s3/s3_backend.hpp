#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cas/cas_backend.hpp"
#include "s3/s3_client.hpp"

namespace dlock {

/// Stores records as objects in a bucket of S3 and replaces them by writes that compare their ETag.
/// The clock is the `Date` of each answer. Waiters poll.
class S3Backend final : public CasBackend {
 public:
  /// Does not connect yet. The names of records begin with `prefix`; `shown` is the URL for people.
  S3Backend(S3Place place, std::string shown, std::string prefix)
      : client_(std::move(place), std::move(shown)), prefix_(std::move(prefix)) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  /// The records come in the order of their keys, not of their names.
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  std::optional<DatedAnswer> last_clock() const override { return client_.last_answer(); }
  std::size_t largest_record() const override { return 1'000'000; }
  void close() override { client_.close(); }
  std::string name() const override { return client_.name(); }

 private:
  /// A record, and the object that keeps it.
  struct Object {
    std::string key;
    std::string etag;
    std::string name;
    microseconds ends{0};
    Snapshot seen{};
  };
  using Listing = std::map<std::string, std::string>;

  std::string key_of(const std::string& name) const;
  Listing keys(const std::string& prefix, const std::string& after, std::size_t most,
               const CallOptions& call_options);
  std::optional<Object> object_in(const std::string& key, const HttpCall& call) const;
  std::vector<Object> objects(const Listing& listing, const CallOptions& call_options);

  S3Client client_;
  const std::string prefix_;
  std::map<std::string, std::pair<Version, std::string>> known_;  ///< versions with their ETags
  bool tried_ = false;  ///< whether the bucket honours conditions
};

}  // namespace dlock
