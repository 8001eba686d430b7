#pragma once

#include <string>

#include "s3/s3_client.hpp"
#include "support/ensemble.hpp"

namespace dlock::test {

/// A gateway that speaks the protocol of S3, with a bucket `locks` in a directory; for one test.
class S3Server final : public Ensemble {
 public:
  /// Whether scripts/cloud-servers has built it.
  static constexpr const char* package = "versitygw (scripts/cloud-servers)";
  static constexpr const char* key_id = "AKIAOFTHETEST";
  static constexpr const char* secret = "s3cret/of+the=test";
  static bool is_installed();

  /// Sets the variables of a user who may do everything, for this process and its dlocks.
  S3Server();

  /// The URL of the folder `test`; `port` may be that of a proxy.
  std::string url(int port = 0) const;
  S3Place place() const;

  void start();
  /// Removes all objects.
  void clear();
  /// Where the gateway has the object with this key, below `test/`.
  std::string file(const std::string& key) const { return servers_[0].dir / ("locks/test/" + key); }

 private:
  bool leads(std::size_t) override { return true; }
  bool serves(std::size_t) override;
};

}  // namespace dlock::test
