#include <sys/statfs.h>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "doctor/ask.hpp"
#include "doctor/examine.hpp"
#include "doctor/rehearsal.hpp"
#include "local/key_file.hpp"
#include "local/key_name.hpp"
#include "local/local_store.hpp"

namespace dlock {
namespace {

/// A free key's file would keep its fence for a week.
void sweep(const DirectorySettings& settings, const LockKey& scratch) {
  const Directory directory(settings);
  auto file = KeyFile::open(directory, key_file_name(scratch), KeyFile::Use::change,
                            {later(BootClock::now(), milliseconds(1000)), -1});
  if (file) file->remove();
}

}  // namespace

SentinelFacts examine_sentinel(const Endpoint& sentinel, const std::string& master_name) {
  SentinelFacts facts;
  facts.endpoint = sentinel;
  Connection connection(std::make_unique<FixedRoute>(sentinel));
  try {
    const Request requests[] = {{"SENTINEL", "get-master-addr-by-name", master_name},
                                {"SENTINEL", "master", master_name},
                                {"SENTINEL", "ckquorum", master_name}};
    const auto replies = ask_all(connection, requests);
    facts.unreachable = refusal_of(replies[0]);
    if (replies[0].is_array(2)) {
      facts.host = replies[0].items[0].text;
      facts.port = replies[0].items[1].text;
    }
    facts.master = told_in_pairs(replies[1]);
    if (replies[2].is_error("NOQUORUM")) facts.quorum_fault = escaped(replies[2].text);
  } catch (const Error& error) {
    facts.was_refused = error.trouble() == Trouble::denied;
    facts.unreachable = bare_trouble(error.what(), sentinel.name());
  }
  return facts;
}

LocalFacts examine_directory(const DirectorySettings& settings) {
  LocalFacts facts;
  facts.directory = settings.path;
  try {
    LocalStore first(settings);
    LocalStore second(settings);
    struct statfs system {};
    if (statfs(settings.path.c_str(), &system) == 0) {
      facts.file_system = static_cast<long>(system.f_type);
    }
    const LockKey scratch = scratch_key();
    facts.rehearsal = rehearse(first, second, scratch);
    sweep(settings, scratch);
  } catch (const Error& error) {
    facts.trouble = error.what();
  }
  return facts;
}

}  // namespace dlock
