#include "doctor/diagnose_zookeeper.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/ask.hpp"
#include "doctor/judge_zookeeper.hpp"
#include "doctor/trial_lock.hpp"
#ifdef DLOCK_WITH_ZOOKEEPER
#include "zookeeper/zookeeper_status.hpp"
#endif

namespace dlock {

#ifdef DLOCK_WITH_ZOOKEEPER
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                             const std::string& chroot, milliseconds session,
                             const DoctorOptions& exam, const std::function<StorePtr()>& open) {
  ZooKeeperFacts facts;
  facts.user = servers.front().user.value_or("");
  facts.here = std::all_of(servers.begin(), servers.end(),
                           [](const Endpoint& each) { return is_this_host(each.host); });
  bool reached = false;
  for (const Endpoint& server : servers) {
    const ZooKeeperServerStatus status = ask_server(server, short_call());
    facts.servers.push_back({status.address,
                             {status.trouble, status.cause},
                             status.answered_in,
                             status.version,
                             status.mode,
                             status.refusal});
    reached = reached || status.trouble.empty();
  }
  if (reached) {
    const auto status = ask_zookeeper(servers, shown, chroot, exam.prefix, session, short_call());
    facts.trouble = bare_trouble(status.trouble, shown);
    facts.session_asked = session;
    facts.session = status.session;
    facts.round_trip = status.round_trip;
    facts.ahead = status.ahead;
  }
  if (reached && facts.trouble.empty()) {
    facts.tried = true;
    const StorePtr first = open(), second = open();
    facts.trial = hold_trial_lock(*first, *second, scratch_key());
    std::string& trouble = facts.trial.trouble.text;
    trouble = bare_trouble(trouble, shown);
  }
  return {shown, zookeeper_label(facts), judge_zookeeper(facts, exam.ttl)};
}
#else
Diagnosis diagnose_zookeeper(const std::vector<Endpoint>&, const std::string&, const std::string&,
                             milliseconds, const DoctorOptions&, const std::function<StorePtr()>&) {
  throw_usage("this dlock was built without ZooKeeper");
}
#endif

std::string zookeeper_rights(const std::vector<Endpoint>& servers, const std::string& chroot) {
  const std::string user = servers.front().user ? escaped(*servers.front().user) : "USER";
  const std::string path = chroot.empty() ? "/" : escaped(chroot);
  return "# in zkCli.sh, as who may change the rights on " + path +
         ":\n"
         "addauth digest " +
         user +
         ":PASSWORD\n"
         "setAcl " +
         path + " auth:" + user + ":PASSWORD:cdrwa\n";
}

}  // namespace dlock
