#include "etcd/etcd_survey.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "etcd/etcd_client.hpp"
#include "etcd/etcd_json.hpp"

namespace dlock {
namespace {

using nlohmann::json;

}  // namespace

EtcdMemberStatus ask_member(const Endpoint& endpoint, const CallOptions& call_options) {
  EtcdMemberStatus member{endpoint.address()};
  try {
    EtcdClient client({endpoint}, endpoint.address());
    const auto ask = [&] { return client.done({"maintenance/status"}, call_options); };
    const Deadline begun = BootClock::now();
    ask();
    const Deadline connected = BootClock::now();
    const json status = ask();
    member.connected_in = connected - begun;
    member.round_trip = BootClock::now() - connected;
    member.version = text_at(status, "/version");
    member.database_size = number_in(status, "dbSize");
    member.size_in_use = number_in(status, "dbSizeInUse");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::host_refused) throw;
    member.unreachable = {error.what(), error.cause()};
  }
  return member;
}

EtcdStatus ask_etcd(const std::vector<Endpoint>& servers, const std::string& prefix,
                    const CallOptions& call_options) {
  EtcdStatus status;
  EtcdClient client(servers, "etcd");
  try {
    client.done({"kv/range", {{"key", to_base64(prefix)}}}, call_options);
    const auto answers = client.ask(
        {{"cluster/member/list"}, {"maintenance/alarm", {{"action", "GET"}}}}, call_options);
    const json& members = answers.front().fields;
    if (const auto list = members.find("members"); list != members.end()) {
      status.voters =
          static_cast<std::size_t>(std::count_if(list->begin(), list->end(), [](const json& each) {
            return !is_true(each, "isLearner");
          }));
    }
    if (answers.back().code != EtcdCode::ok) status.alarms_not_told = answers.back().message;
    const json& alarms = answers.back().fields;
    if (const auto list = alarms.find("alarms"); list != alarms.end()) {
      for (const json& each : *list) status.alarms.push_back(text_at(each, "/alarm"));
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::host_refused) throw;
    status.trouble = error.what();
  }
  return status;
}

}  // namespace dlock
