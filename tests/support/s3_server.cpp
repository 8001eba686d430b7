#include "support/s3_server.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/eventually.hpp"

namespace dlock::test {
namespace {

constexpr const char* gateway = DLOCK_CLOUD_SERVERS "/versitygw";

}  // namespace

bool S3Server::is_installed() { return access(gateway, X_OK) == 0; }

S3Server::S3Server() : Ensemble(1) {
  setenv("AWS_ACCESS_KEY_ID", key_id, 1);
  setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
  start();
}

void S3Server::start() {
  std::filesystem::create_directories(servers_[0].dir / "locks");
  run(0, {"/usr/bin/env", std::string("ROOT_ACCESS_KEY=") + key_id,
          std::string("ROOT_SECRET_KEY=") + secret, gateway, "--port", addresses(), "--quiet",
          "--keep-alive", "posix", servers_[0].dir.path()});
  await_service();
}

bool S3Server::serves(std::size_t) {
  return static_cast<bool>(connect_to(Address{"", endpoint(0).port}));
}

void S3Server::clear() { std::filesystem::remove_all(servers_[0].dir / "locks/test"); }

std::string S3Server::url(int port) const {
  return "s3://locks/test?endpoint=http://127.0.0.1:" +
         std::to_string(port == 0 ? endpoint(0).port : port);
}

S3Place S3Server::place() const { return {endpoint(0), "us-east-1", "locks", "test", true}; }

}  // namespace dlock::test
