#include <unistd.h>

#include <type_traits>

#include "base/error.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "doctor/checks.hpp"
#include "output/diagnosis.hpp"

namespace dlock {
namespace {

/// Creates the table of a database, by a read: a store creates the table before its first read.
int create_table(const DoctorSettings& settings) {
  const auto* database = std::get_if<SqlTarget>(&settings.server);
  if (database == nullptr) {
    throw_usage("--schema: only databases need it: it goes with postgres:// and mysql://");
  }
  open_store(settings)->inspect({{scratch_key()}, {}}, short_call());
  if (!settings.quiet) print(database->shown + ": the table dlock is there\n");
  return 0;
}

}  // namespace

int carry_out(const DoctorSettings& settings, const Log&) {
  if (settings.schema) return create_table(settings);
  const DoctorOptions options{settings.prefix, settings.ttl, settings.expected_replicas};
  if (settings.acl) {
    print(std::visit([&](const auto& server) { return rights_text(server, options); },
                     settings.server));
    return 0;
  }
  const auto examined = [&](const auto& server) {
    if constexpr (std::is_same_v<decltype(server), const LocalTarget&>) {
      return diagnose(directory_of(server));
    } else {
      return diagnose(server, options, [&] { return open_store(settings); });
    }
  };
  Diagnosis diagnosis = std::visit(examined, settings.server);
  if (!settings.server_place.empty()) {
    const bool overrides = !settings.overridden_place.empty();
    diagnosis.findings.insert(
        diagnosis.findings.begin(),
        {overrides ? Level::warning : Level::ok, "source", "from " + server_source_text(settings),
         overrides ? "jobs of other users lock elsewhere: name one server" : ""});
  }
  if (!settings.quiet) {
    print(settings.json ? diagnosis_json(diagnosis)
                        : diagnosis_text(diagnosis, screen_at(STDOUT_FILENO)));
  }
  return static_cast<int>(diagnosis.verdict());
}

}  // namespace dlock
