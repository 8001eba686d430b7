// Locks in a bucket, as users of dlock see them, and how dlock finds the credentials for it.

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"
#include "support/s3_server.hpp"

namespace dlock::test {
namespace {

S3Server& cleared_bucket() { return cleared<S3Server>(); }

TEST_CASE("s3: locks, latches and guards live in a bucket") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared_bucket();
  CHECK(run_at(s3.url()).exit_code == 0);
  // A free key keeps one object for its fence.
  CHECK(std::distance(std::filesystem::directory_iterator(s3.file("k")), {}) == 1);
  CHECK(std::filesystem::exists(s3.file(".dlock-conditional-writes")));
  check_all_commands_at(s3.url());
}

TEST_CASE("s3: a released lock goes to the first waiter within seconds") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared_bucket();
  CommandInside holder(s3.url(), {"-t", "60s"});
  Process first = queued_at(s3.url(), 1, {"-t", "60s", "--", "echo", "first"});
  Process second = queued_at(s3.url(), 2, {"-t", "60s", "--", "echo", "second"});
  holder.end();
  CHECK(first.wait(milliseconds(30'000)).out == "first\n");
  CHECK(second.wait(milliseconds(30'000)).out == "second\n");
}

TEST_CASE("s3: a lock whose holder was killed is free some seconds after its lease") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared_bucket();
  CommandInside holder(s3.url(), {"-t", "5s"});
  holder.process.kill_hard();
  CHECK(dlock_at(s3.url(), {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(dlock_at(s3.url(), {"run", "-w", "30s", "-k", "a", "--", "true"}).exit_code == 0);
}

TEST_CASE("s3: a holder stops its command when the store is killed, and locks outlive the store") {
  if (is_missing<S3Server>()) return;
  S3Server& s3 = cleared_bucket();
  const Result acquired = dlock_at(s3.url(), {"acquire", "-k", "b", "-t", "600s"});
  REQUIRE(acquired.exit_code == 0);
  CommandInside holder(s3.url(), {"-t", "6s"});
  s3.kill_hard(0);
  CHECK(holder.process.wait(milliseconds(60'000)).exit_code == 79);
  check_message(run_at(s3.url()), 69, "s3://locks/test");
  s3.start();
  CHECK(dlock_at(s3.url(), {"run", "-n", "-k", "b", "--", "true"}).exit_code == 75);
}

TEST_CASE("s3: a store that stands still for less than the lease costs no lock") {
  if (is_missing<S3Server>()) return;
  S3Server& s3 = cleared_bucket();
  CommandInside holder(s3.url(), {"-t", "15s"});
  s3.stop(0);
  std::this_thread::sleep_for(milliseconds(6000));  // longer than a third of the lease
  s3.cont(0);
  holder.end();
  CHECK(holder.process.wait(milliseconds(60'000)).exit_code == 0);
}

TEST_CASE("s3: a renewal whose answer is lost is found done") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared_bucket();
  FaultProxy proxy(Address{"", s3.endpoint(0).port}, true);
  CommandInside holder(s3.url(proxy.address().port), {"-t", "15s"});
  proxy.hold(Direction::replies);
  REQUIRE(eventually([&] { return proxy.held(Direction::replies) > 0; }));
  proxy.drop_held(Direction::replies);
  proxy.reset_connections();
  std::this_thread::sleep_for(milliseconds(2000));
  CHECK(state_at(s3.url(), "a")["holders"].size() == 1);
  holder.end();
  const Result ended = holder.process.wait(milliseconds(60'000));
  CHECK(ended.exit_code == 0);
  CHECK(ended.err == "");
}

/// The first request of dlock to a store, with the credentials that `variables` give.
std::string asked_with(std::map<std::string, std::string> variables) {
  FakeServer store({say_http("<Error><Code>SlowDown</Code></Error>", "503 Slow Down")}, true);
  ProcessOptions options{.env = std::move(variables)};
  options.env.emplace("AWS_ACCESS_KEY_ID", "");
  options.env.emplace("AWS_EC2_METADATA_DISABLED", "true");
  options.env["DLOCK_SERVER"] =
      "s3://locks/test?endpoint=http://127.0.0.1:" + std::to_string(store.address().port);
  const Result result = dlock({"run", "-n", "-k", "a", "--", "true"}, options);
  CAPTURE(result.err);
  CHECK(result.exit_code == 69);
  REQUIRE(!store.requests().empty());
  return store.requests().front().front();
}

std::string url_of(const FakeServer& server) {
  return "http://127.0.0.1:" + std::to_string(server.address().port);
}

constexpr const char* json_of_a_role =
    R"({"AccessKeyId": "ASIAROLE", "SecretAccessKey": "x", "Token": "tok", "Expiration": )"
    R"("2099-01-01T00:00:00Z"})";

void check_signed_by_role(const std::string& request) {
  CAPTURE(request);
  CHECK(holds(request, "Credential=ASIAROLE/"));
  CHECK(holds(request, "x-amz-security-token: tok\r\n"));
  CHECK(holds(request, ";x-amz-security-token"));
}

TEST_CASE("s3: keys come from variables before all else, and the region from the URL") {
  const std::string request = asked_with({{"AWS_ACCESS_KEY_ID", "AKIAOWN"},
                                          {"AWS_SECRET_ACCESS_KEY", "x"},
                                          {"AWS_REGION", "eu-west-1"},
                                          {"AWS_PROFILE", "none"}});
  CHECK(holds(request, "Credential=AKIAOWN/"));
  CHECK(holds(request, "/eu-west-1/s3/aws4_request"));
}

TEST_CASE("s3: keys come from the files of AWS's program, by the name of a profile") {
  const TempDir dir;
  write_file(dir / "credentials",
             "[default]\naws_access_key_id = AKIADEFAULT\n"
             "aws_secret_access_key=x\n");
  write_file(dir / "config", "[profile tool]\nregion = eu-west-1\ncredential_process = cat " +
                                 (dir / "made") + "\n[profile sso]\nsso_session = work\n");
  write_file(dir / "made", json_of_a_role);
  std::map<std::string, std::string> files{{"AWS_SHARED_CREDENTIALS_FILE", dir / "credentials"},
                                           {"AWS_CONFIG_FILE", dir / "config"}};
  CHECK(holds(asked_with(files), "Credential=AKIADEFAULT/"));
  files["AWS_PROFILE"] = "tool";
  check_signed_by_role(asked_with(files));
  // Other kinds are left to AWS's program.
  files["AWS_PROFILE"] = "sso";
  std::filesystem::create_directory(dir / "bin");
  write_file(dir / "bin/aws",
             "#!/bin/sh\n[ \"$*\" = 'configure export-credentials --format "
             "process --profile sso' ] && cat " +
                 (dir / "made") + "\n");
  std::filesystem::permissions(dir / "bin/aws", std::filesystem::perms::owner_all);
  files["PATH"] = dir / "bin" + std::string(":/usr/bin:/bin");
  check_signed_by_role(asked_with(files));
}

TEST_CASE("s3: a pod exchanges its token for the credentials of a role") {
  const TempDir dir;
  write_file(dir / "token", "pod+token\n");
  const FakeServer sts(
      {say_http("<R><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>"
                "<SecretAccessKey>x</SecretAccessKey><SessionToken>tok</SessionToken>"
                "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>")},
      true);
  check_signed_by_role(asked_with({{"AWS_WEB_IDENTITY_TOKEN_FILE", dir / "token"},
                                   {"AWS_ROLE_ARN", "arn:aws:iam::1:role/dlock"},
                                   {"AWS_ENDPOINT_URL_STS", url_of(sts)}}));
  const std::string asked = const_cast<FakeServer&>(sts).requests().front().front();
  CHECK(holds(asked, "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fdlock&"));
  CHECK(holds(asked, "&WebIdentityToken=pod%2Btoken "));
}

TEST_CASE("s3: a container and an instance get the credentials of their role") {
  FakeServer role({say_http(json_of_a_role)}, true);
  check_signed_by_role(asked_with({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url_of(role) + "/role"},
                                   {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me"}}));
  CHECK(holds(role.requests().front().front(), "Authorization: let me\r\n"));

  FakeServer instance(
      [](const std::vector<std::string>& words) {
        const std::string& request = words.front();
        if (request.starts_with("PUT /latest/api/token ")) return say_http("session");
        const bool known = holds(request, "X-aws-ec2-metadata-token: session\r\n");
        if (!known) return say_http("", "401 Unauthorized");
        const bool all = request.starts_with("GET /latest/meta-data/iam/security-credentials/ ");
        return say_http(all ? "the-role" : json_of_a_role);
      },
      true);
  check_signed_by_role(asked_with({{"AWS_EC2_METADATA_DISABLED", "false"},
                                   {"AWS_EC2_METADATA_SERVICE_ENDPOINT", url_of(instance)}}));
}

}  // namespace
}  // namespace dlock::test
