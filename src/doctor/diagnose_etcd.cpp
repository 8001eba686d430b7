#include "doctor/diagnose_etcd.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/ask.hpp"
#include "doctor/judge_etcd.hpp"
#include "doctor/trial_lock.hpp"
#ifdef DLOCK_WITH_ETCD
#include "etcd/etcd_status.hpp"
#endif

namespace dlock {
namespace {

#ifdef DLOCK_WITH_ETCD
EtcdMemberFacts facts_of(const EtcdMemberStatus& status) {
  return {status.address,    {status.trouble, status.cause},
          status.denied,     status.answered_in,
          status.round_trip, status.version,
          status.has_leader, status.database_size,
          status.size_in_use};
}

EtcdFacts examine_etcd(const std::vector<Endpoint>& servers, const std::string& prefix) {
  EtcdFacts facts;
  facts.tls = servers.front().tls.has_value();
  facts.user = servers.front().user.value_or("");
  facts.here = std::all_of(servers.begin(), servers.end(),
                           [](const Endpoint& each) { return is_this_host(each.host); });
  bool reached = false;
  for (const Endpoint& server : servers) {
    facts.members.push_back(facts_of(ask_member(server, short_call())));
    reached = reached || facts.members.back().unreachable.empty();
  }
  if (!reached) return facts;
  const EtcdStatus status = ask_etcd(servers, prefix, short_call());
  facts.trouble = status.trouble;
  facts.voters = status.voters;
  facts.alarms = status.alarms;
  facts.alarms_not_told = status.alarms_not_told;
  facts.revision = status.revision;
  facts.compacted = status.compacted;
  return facts;
}
#else
EtcdFacts examine_etcd(const std::vector<Endpoint>&, const std::string&) {
  throw_usage("this dlock was built without etcd");
}
#endif

}  // namespace

Diagnosis diagnose_etcd(const std::vector<Endpoint>& servers, const std::string& shown,
                        const DoctorOptions& exam, const std::function<StorePtr()>& open) {
  EtcdFacts facts = examine_etcd(servers, exam.prefix);
  const bool reached = std::any_of(facts.members.begin(), facts.members.end(),
                                   [](const auto& each) { return each.unreachable.empty(); });
  if (reached && facts.trouble.empty()) {
    facts.tried = true;
    const StorePtr first = open(), second = open();
    facts.trial = hold_trial_lock(*first, *second, scratch_key());
    std::string& trouble = facts.trial.trouble.text;
    trouble = bare_trouble(trouble, shown);
  }
  return {shown, etcd_label(facts), judge_etcd(facts, exam.ttl)};
}

std::string etcd_rights(const std::vector<Endpoint>& servers, const std::string& prefix) {
  const std::string user = servers.front().user ? escaped(*servers.front().user) : "USER";
  return "etcdctl role add dlock\n"
         "etcdctl role grant-permission dlock --prefix=true readwrite " +
         escaped(prefix) +
         "\n"
         "etcdctl user add " +
         user +
         "\n"
         "etcdctl user grant-role " +
         user + " dlock\n";
}

}  // namespace dlock
