#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "s3/s3_conditions.hpp"

namespace dlock {
namespace {

/// Enough of a key's id to tell it from others.
std::string shortened(const std::string& id) {
  constexpr std::size_t shown = 4;
  if (id.size() <= 2 * shown) return escaped(id);
  return escaped(id.substr(0, shown) + "..." + id.substr(id.size() - shown));
}

#ifdef DLOCK_WITH_S3
void ask_about_versions(S3Facts& facts, S3Client& client) {
  try {
    const HttpCall call = client.send_one({"GET", "", "versioning="}, short_call());
    facts.versioning = xml_text(call.answer, "Status");
  } catch (const Error& error) {
    facts.versioning_not_told = bare_trouble(error.what(), client.name());
  }
}

void try_conditions(S3Facts& facts, S3Client& client) {
  try {
    require_conditional_writes(client, short_call());
  } catch (const Error& error) {
    facts.ignored = {bare_trouble(error.what(), client.name()), error.cause()};
  }
}
#endif

}  // namespace

std::string label_of(const S3Facts& facts) {
  const bool unfit = !facts.unreachable.empty() || !facts.ignored.empty();
  return unfit ? "unfit: two clients could hold one lock"
               : "safe while the store keeps its writes, and its clocks and this host's run evenly";
}

Findings check_s3(const S3Facts& facts) {
  const std::string history = "the bucket keeps every state of every lock";
  return first_rows({
      {"reach", !facts.unreachable.empty(),
       check_reach(facts, advice_on_reach(facts.unreachable.cause)), ends},
      {"reach", true, check_reach(facts, "")},
      {"region", true, good(escaped(facts.region))},
      {"user", true, good("access key " + shortened(facts.user))},
      {"writes", !facts.ignored.empty(),
       bad(facts.ignored.text, "a newer version of the store, or another store"), ends},
      {"writes", true, good("conditional: If-None-Match and If-Match are honoured")},
      {"clock", true,
       check_clock(facts.clock, "times shown are off, and at 15 minutes requests are refused")},
      {"versions", !facts.versioning_not_told.empty(), not_told(facts.versioning_not_told)},
      {"versions", facts.versioning == "Enabled",
       warn("versioning is on: " + history,
            "a lifecycle rule for " + escaped(facts.folder) +
                "/: NoncurrentVersionExpiration after 1 day, ExpiredObjectDeleteMarker")},
      {"versions", true, good("versioning is off: only the present state of a lock is kept")},
      {"tls", facts.tls, good("the certificate of the server is verified")},
      {"tls", true, check_plain_text(facts.here, "https:// in the endpoint")},
      {"lock", facts.trial.has_value(), check_lock(facts.trial, "see the rights of its user")},
      {"label", true, good(label_of(facts))},
  });
}

Diagnosis diagnose(const S3Target& target, const DoctorOptions& options, const OpenStore& open) {
  S3Facts facts;
  facts.options = options;
  facts.region = target.region;
  facts.folder = target.folder;
  facts.tls = target.servers.front().tls.has_value();
  facts.here = are_on_this_host(target.servers);
#ifdef DLOCK_WITH_S3
  S3Client client(
      {target.servers.front(), target.region, target.bucket, target.folder, target.bucket_in_path},
      target.name());
  const auto clock = [&]() -> std::optional<WallTime> {
    client.send_one({"GET", "", "list-type=2&max-keys=1&prefix=dlock"}, short_call());
    return WallTime(client.last_answer()->clock);
  };
  const auto rest = [&] {
    facts.user = client.credentials(short_call()).id;
    try_conditions(facts, client);
    ask_about_versions(facts, client);
    if (facts.ignored.empty()) facts.trial = try_lock(open, scratch_key(), target.name());
  };
  examine(facts, target.name(), clock, rest, std::chrono::seconds(1));
#endif
  return {target.name(), label_of(facts), check_s3(facts)};
}

/// A policy of AWS. Without s3:ListBucket the store answers 403 for an object that is missing.
std::string rights_text(const S3Target& target, const DoctorOptions&) {
  const std::string bucket = "arn:aws:s3:::" + target.bucket;
  return sentence(
      "{\"Version\": \"2012-10-17\", \"Statement\": [\n"
      "  {\"Effect\": \"Allow\", \"Action\": [\"s3:GetObject\", \"s3:PutObject\", "
      "\"s3:DeleteObject\"],\n"
      "   \"Resource\": \"{}/{}/*\"},\n"
      "  {\"Effect\": \"Allow\", \"Action\": [\"s3:ListBucket\", "
      "\"s3:GetBucketVersioning\"], \"Resource\": \"{}\"}]}\n",
      bucket, target.folder, bucket);
}

}  // namespace dlock
