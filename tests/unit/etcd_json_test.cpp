// The answers of etcd's gateway, and how dlock parses them.

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "etcd/etcd_backend.hpp"
#include "etcd/etcd_json.hpp"
#include "support/fake_server.hpp"
#include "unit/doctor_support.hpp"

namespace dlock::test {
namespace {

TEST_CASE("etcd: base64 writes all bytes and reads them") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    CHECK(from_base64(to_base64(all)) == all);
  }
  CHECK(to_base64("").empty());
  CHECK(to_base64("f") == "Zg==");
  CHECK(to_base64("fo") == "Zm8=");
  CHECK(to_base64("foo") == "Zm9v");
}

TEST_CASE("etcd: an answer is read as it is, in a stream, or as an error") {
  const auto plain = parse_answer(R"({"header":{"revision":"12"},"count":"3"})");
  REQUIRE(plain);
  CHECK(revision_in(plain->fields) == 12);
  CHECK(range_in(plain->fields).count == 3);
  const auto streamed = parse_answer(R"({"result":{"TTL":"5"}})");
  REQUIRE(streamed);
  CHECK(number_in(streamed->fields, "TTL") == 5);
  const auto error = parse_answer(R"({"error":"no","message":"no","code":5})");
  REQUIRE(error);
  CHECK(error->code == EtcdCode::not_found);
  CHECK(error->message == "no");
  const auto of_later_version = parse_answer(R"({"code":5,"message":"no","details":[]})");
  REQUIRE(of_later_version);
  CHECK(of_later_version->code == EtcdCode::not_found);
  CHECK(of_later_version->message == "no");
  const auto in_stream = parse_answer(R"({"error":{"grpc_code":14,"message":"away"}})");
  REQUIRE(in_stream);
  CHECK(in_stream->code == EtcdCode::unavailable);
  CHECK(in_stream->message == "away");
}

TEST_CASE("etcd: what is no answer of etcd's is none, and of a wrong kind it is empty") {
  for (const char* text : {"", "-ERR unknown command", "[]", "7", "\"x\"", "{", "<html>"}) {
    CAPTURE(text);
    CHECK(!parse_answer(text));
  }
  for (const char* text :
       {"{}", R"({"header":7,"kvs":3,"count":[]})", R"({"kvs":[1,null,{"key":5,"value":"%"}]})",
        R"({"header":{"revision":"x"},"events":[{"kv":[]}],"more":"yes"})"}) {
    const auto answer = parse_answer(text);
    REQUIRE(answer);
    CHECK(revision_in(answer->fields) == 0);
    CHECK(!range_in(answer->fields).more);
    CHECK(range_in(answer->fields).count == 0);
    for (const EtcdEvent& event : events_in(answer->fields)) CHECK(event.key.empty());
  }
}

TEST_CASE("etcd: a time is as long as dlock can calculate with, and a negative one is none") {
  const auto span_of = [](const std::string& ttl) {
    const auto answer = parse_answer("{\"TTL\":" + ttl + "}");
    REQUIRE(answer);
    return span_in(answer->fields, "TTL");
  };
  CHECK(span_of("\"30\"") == milliseconds(30'000));
  CHECK(span_of("30") == milliseconds(30'000));
  for (const char* ended : {"\"-1\"", "-9223372036854775808", "\"-9223372036854775807\"", "[]"}) {
    CAPTURE(ended);
    CHECK(span_of(ended) == milliseconds(0));
  }
  for (const char* much : {"\"1000000001\"", "9223372036854775807", "\"9223372036854775807\""}) {
    CAPTURE(much);
    CHECK(span_of(much) == longest_span);
  }
  CHECK(span_in(nlohmann::json::object(), "TTL") == milliseconds(0));
}

TEST_CASE("etcd: the versions that may lose leases are known") {
  for (const char* version : {"3.4.23", "3.4.30", "3.5.0", "3.5.12"}) CHECK(loses_leases(version));
  for (const char* version : {"3.4.31", "3.5.13", "3.5.16", "3.6.0", "4.4.1", "", "3.5", "x.y.z"}) {
    CHECK(!loses_leases(version));
  }
}

EtcdFacts three_members(const std::string& version) {
  EtcdFacts facts;
  facts.voters = 3;
  for (const char* address : {"e1:2379", "e2:2379", "e3:2379"}) {
    EtcdMemberStatus member{address};
    member.version = version;
    facts.members.push_back(member);
  }
  facts.here = true;
  return facts;
}

Finding finding_on(const EtcdFacts& facts, const std::string& check) {
  return finding_of(check_etcd(facts), check);
}

TEST_CASE("etcd: doctor warns of what loses locks, and of what will") {
  const EtcdFacts sound = three_members("3.5.16");
  for (const Finding& each : check_etcd(sound)) CHECK(each.level == Level::ok);
  CHECK(label_of(sound) == "safe while a majority lives");
  CHECK(finding_on(three_members("3.4.23"), "engine").level == Level::warning);
  CHECK(finding_on(three_members("3.3.27"), "engine").level == Level::error);
  EtcdFacts facts = sound;
  facts.alarms = {"NOSPACE"};
  CHECK(finding_on(facts, "alarm").level == Level::error);
  facts = sound;
  facts.trouble = "no answer in time";
  CHECK(finding_on(facts, "quorum").level == Level::error);
  facts = sound;
  facts.voters = 4;
  CHECK(finding_on(facts, "quorum").level == Level::warning);
  facts = sound;
  facts.members[2].database_size = 3LL << 29;
  CHECK(finding_on(facts, "space").level == Level::warning);
  facts = sound;
  facts.here = false;
  CHECK(finding_on(facts, "tls").level == Level::warning);
  facts.tls = true;
  CHECK(finding_on(facts, "tls").level == Level::ok);
  facts = sound;
  facts.members[0].unreachable = {"connection refused", Cause::none};
  CHECK(finding_on(facts, "reach").level == Level::warning);
}

TEST_CASE("etcd: doctor says no more where no member answers, and why") {
  EtcdFacts facts = three_members("3.5.16");
  for (EtcdMemberStatus& member : facts.members) member.unreachable = {"e1: refused", Cause::none};
  REQUIRE(check_etcd(facts).size() == 1);
  CHECK(finding_on(facts, "reach").level == Level::error);
  CHECK(finding_on(facts, "reach").advice.starts_with("is it running"));
  facts.members.front().unreachable.cause = Cause::password_wrong;
  CHECK(finding_on(facts, "reach").advice.starts_with("check user and password"));
}

TEST_CASE("etcd: doctor promises nothing of an etcd whose members it was not told") {
  EtcdFacts facts;
  facts.members = {{"e1:2379", {"e1: refused", Cause::none}}};
  CHECK(label_of(facts) == "best effort: whether a majority keeps the locks is not known");
  facts.voters = 1;
  CHECK(label_of(facts) == "as safe as its disk");
}

TEST_CASE("etcd: doctor calls nothing sound that it was not told or that failed") {
  EtcdFacts facts = three_members("3.5.16");
  facts.trial.emplace();
  facts.trial->trouble = {"permission denied", Cause::acl};
  facts.alarms_not_told = "permission denied";
  facts.voters = 0;
  facts.members[0].round_trip = std::chrono::milliseconds(1100);
  CHECK(finding_on(facts, "reach").level == Level::warning);
  CHECK(finding_on(facts, "lock").level == Level::error);
  CHECK_FALSE(finding_on(facts, "alarm").told);
  CHECK_FALSE(finding_on(facts, "quorum").told);
  facts.alarms_not_told.clear();
  facts.alarms = {"CORRUPT"};
  CHECK(finding_on(facts, "alarm").level == Level::error);
  CHECK(finding_on(facts, "alarm").text.starts_with("CORRUPT"));
  facts.members[1].version = "3.4.23";
  CHECK(finding_on(facts, "engine").text.starts_with("etcd 3.4.23, 3.5.16: a leader that was"));
}

/// The result of a renewal with this answer.
EngineLease renewed(const std::string& body) {
  FakeServer server({say_http(body)}, true);
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = server.address().port;
  EtcdBackend backend({endpoint}, "etcd://of-the-test");
  EngineLease lease{7, milliseconds(30'000), milliseconds(30'000), BootClock::now()};
  backend.renew(lease, {later(BootClock::now(), std::chrono::seconds(60)), -1});
  return lease;
}

TEST_CASE("etcd: only an answer that tells how long a lease lasts renews it") {
  const EngineLease lease = renewed(R"({"result":{"ID":"7","TTL":"31"}})");
  CHECK(lease.id == 7);
  CHECK(lease.length == milliseconds(31'000));
  CHECK(renewed(R"({"result":{"ID":"7"}})").id == 0);
  CHECK(renewed(R"({"error":{"grpc_code":5,"message":"lease not found"}})").id == 0);
  for (const char* other : {R"({"error":{"grpc_code":9,"message":"a precondition"}})",
                            R"({"code":9,"message":"a precondition"})"}) {
    CAPTURE(other);
    CHECK_THROWS_AS(renewed(other), Error);
  }
}

}  // namespace
}  // namespace dlock::test
