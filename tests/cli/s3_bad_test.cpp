// Faults of a bucket that holds locks, of its store, and of the way there.

#include <doctest/doctest.h>

#include <filesystem>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/s3_server.hpp"

namespace dlock::test {
namespace {

constexpr const char* dated = "\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Length: ";

Step answer(const std::string& status, const std::string& code = "") {
  const std::string body = code.empty() ? ""
                                        : "<Error><Code>" + code +
                                              "</Code><Message>of the "
                                              "test</Message><Region>eu-north-1</Region></Error>";
  return say("HTTP/1.1 " + status + dated + std::to_string(body.size()) + "\r\n\r\n" + body);
}

/// A store whose answer is always the same.
Result run_at_store(const Step& always) {
  FakeServer store({always}, true);
  setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHETEST", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "x", 1);
  return dlock_at(
      "s3://locks/test?endpoint=http://127.0.0.1:" + std::to_string(store.address().port),
      {"run", "-n", "-k", "a", "--", "true"});
}

TEST_CASE("s3: a URL that is wrong is refused with 64") {
  const auto refused = [](const std::string& url, const std::string& why) {
    CAPTURE(url);
    check_message(run_at(url), 64, why);
  };
  refused("s3://", "the bucket is missing");
  refused("s3://user:xyzzy@bucket", "s3:// takes no login");
  refused("s3://bucket?zone=a", "none of endpoint and region");
  refused("s3://bucket?endpoint=minio:9000", "is not http[s]://HOST[:PORT]");
  refused("s3://bucket?endpoint=", "\"endpoint=\" has no value");
  refused("s3://buc%20ket", "have only letters, digits");
  refused("s3://bucket/a//b", "have only letters, digits");
}

TEST_CASE("s3: without credentials one line says where they may stand, with 77") {
  ProcessOptions options = at("s3://bucket");
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"}) options.env[name] = "";
  options.env["AWS_EC2_METADATA_DISABLED"] = "true";
  const auto refused = [&](int code, const std::string& why) {
    options.env["DLOCK_SERVER"] = "s3://bucket?endpoint=http://127.0.0.1:1";
    check_message(dlock({"run", "-k", "a", "--", "true"}, options), code, why);
  };
  refused(77, "no AWS credentials: set AWS_ACCESS_KEY_ID");
  options.env["AWS_PROFILE"] = "nobody";
  refused(77, "the AWS profile nobody does not exist");
  const TempDir dir;
  options.env["AWS_CONFIG_FILE"] = dir / "config";
  write_file(dir / "config", "[profile nobody]\ncredential_process = echo no >&2; exit 3\n");
  refused(77, "the AWS profile nobody: /bin/sh: no");
  write_file(dir / "config", "[profile nobody]\nsso_session = work\n");
  options.env["PATH"] = dir.path();
  refused(77, "the AWS profile nobody: aws: command not found");
}

TEST_CASE("s3: wrong keys, a wrong bucket and a wrong region are one line that names them") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared<S3Server>();
  std::string other = s3.url();
  other.replace(other.find("locks"), 5, "socks");
  check_message(run_at(other), 64, "there is no such bucket");
  check_message(run_at(s3.url() + "&region=eu-west-1"), 64,
                "the bucket is in us-east-1: ?region=us-east-1");
  setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
  check_message(run_at(s3.url()), 77, "SignatureDoesNotMatch");
  setenv("AWS_SECRET_ACCESS_KEY", S3Server::secret, 1);
  CHECK(run_at(s3.url()).exit_code == 0);
}

TEST_CASE("s3: what a store refuses becomes the line and the code that help") {
  check_message(
      run_at_store(answer("403 Forbidden", "AccessDenied")), 77,
      "AccessDenied: of the test: `dlock doctor --acl` prints the rights that dlock needs");
  check_message(run_at_store(answer("403 Forbidden", "InvalidAccessKeyId")), 77,
                "InvalidAccessKeyId: of the test");
  check_message(run_at_store(answer("403 Forbidden", "RequestTimeTooSkewed")), 71,
                "this host's clock is off by more than 15 minutes");
  check_message(run_at_store(answer("301 Moved", "PermanentRedirect")), 64,
                "the bucket is in eu-north-1: ?region=eu-north-1");
  check_message(run_at_store(answer("503 Slow Down", "SlowDown")), 69, "later: SlowDown");
  check_message(run_at_store(say_http("hello")), 69, "its answer has no date");
  check_message(run_at_store(say_http("hello", "404 Not Found")), 69,
                "it answers 404, and is no S3");
}

TEST_CASE("s3: a store that does not compare before it writes gets no lock") {
  const auto run_where = [](const std::string& ignored) {
    FakeServer store(
        [&](const std::vector<std::string>& words) {
          const std::string& request = words.front();
          if (request.starts_with("GET")) return answer("404 Not Found", "NoSuchKey");
          const bool ignores = holds(request, ignored + ":") || !holds(request, "If-");
          return ignores ? answer("200 OK") : answer("412 Precondition Failed");
        },
        true);
    setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHETEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "x", 1);
    return dlock_at(
        "s3://locks/test?endpoint=http://127.0.0.1:" + std::to_string(store.address().port),
        {"run", "-n", "-k", "a", "--", "true"});
  };
  check_message(run_where("If-None-Match"), 69,
                "locks does not honour If-None-Match: two clients could hold one lock");
  check_message(run_where("If-Match"), 69, "locks does not honour If-Match");
}

TEST_CASE("s3: an object that is not dlock's is left alone, with 65") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared<S3Server>();
  REQUIRE(run_at(s3.url()).exit_code == 0);
  const auto object = std::filesystem::directory_iterator(s3.file("k"))->path();
  std::filesystem::remove(object);
  write_file(object, "mine");
  check_message(run_at(s3.url()), 65, "holds something else than a record of dlock");
  CHECK(read_file(object) == "mine");
  CHECK(dlock_at(s3.url(), {"inspect"}).exit_code == 0);
}

TEST_CASE("s3: doctor tells what a bucket is worth, and prints the policy that dlock needs") {
  if (is_missing<S3Server>()) return;
  const S3Server& s3 = cleared<S3Server>();
  const Result examined = doctor_at(s3.url());
  CAPTURE(examined.out);
  CHECK(examined.exit_code == 0);
  CHECK(finding(examined, "writes").starts_with("ok conditional"));
  CHECK(finding(examined, "user") == "ok access key AKIA...TEST -> ");
  CHECK(finding(examined, "versions").starts_with("ok versioning is off"));
  CHECK(finding(examined, "lock").starts_with("ok"));
  CHECK(!holds(examined.out, S3Server::secret));
  // Nothing but the free key of the trial and no scratch object is left.
  CHECK(std::distance(std::filesystem::directory_iterator(s3.file("")), {}) == 2);
  const auto policy =
      nlohmann::json::parse(dlock_at("s3://locks/ci", {"doctor", "--acl"}).out, nullptr, false);
  REQUIRE(policy.is_object());
  CHECK(policy["Statement"][0]["Resource"] == "arn:aws:s3:::locks/ci/*");
}

}  // namespace
}  // namespace dlock::test
