#pragma once

#include "base/wait.hpp"
#include "s3/s3_client.hpp"

namespace dlock {

/// Tries on a scratch object whether the store writes only under the conditions that dlock sets.
/// Throws Error{unavailable} if it ignores one: two clients could hold one lock.
void require_conditional_writes(S3Client& client, const CallOptions& call_options);
/// Like the former, but only once for a bucket: an object there remembers the result.
void require_conditional_writes_once(S3Client& client, const CallOptions& call_options);
/// Whether the store deletes only under a condition.
bool deletes_under_condition(S3Client& client, const CallOptions& call_options);

}  // namespace dlock
