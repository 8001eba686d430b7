#pragma once

#include <string>

#include "support/temp_dir.hpp"

namespace dlock::test {

/// A certificate in PEM, and the key of it.
struct Certificate {
  std::string file;
  std::string key;
};

/// The host names and addresses the servers of tests have.
inline constexpr const char* loopback_names = "DNS:localhost,IP:127.0.0.1";

/// A certificate authority of the test's own, made by the openssl command; keys are EC P-256. Its
/// files go with the object.
class TestCa {
 public:
  /// `name` is its common name.
  explicit TestCa(const std::string& name = "Test CA");

  const std::string& file() const { return own_.file; }
  /// For `alt_names`, as openssl writes them; with -1 `days` it expired yesterday.
  /// Every certificate of one CA needs another `name`.
  Certificate issue(const std::string& name, const std::string& alt_names = loopback_names,
                    int days = 2) const;
  /// The same without any CA.
  Certificate self_signed(const std::string& name) const;
  /// A directory that holds the CA under its hash.
  std::string hashed_directory() const;
  /// Where more files may lie.
  const TempDir& dir() const { return dir_; }

 private:
  Certificate make_root(const std::string& name, const std::string& alt_names) const;

  TempDir dir_;
  Certificate own_;
};

}  // namespace dlock::test
