#include "sql/postgres_hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "net/resolve.hpp"
#include "sql/libpq.hpp"

namespace dlock {
namespace {

std::string parameter(const PQconninfoOption* options, const char* name) {
  for (; options->keyword != nullptr; ++options) {
    if (std::strcmp(options->keyword, name) == 0)
      return options->val == nullptr ? "" : options->val;
  }
  return "";
}

std::vector<std::string> entries(std::string_view list) {
  std::vector<std::string> all;
  for (auto comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    all.emplace_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  all.emplace_back(list);
  return all;
}

bool is_socket(const std::string& host) {
  return host.empty() || host.front() == '/' || host.front() == '@';
}

/// The limits of one look-up of so many that are left: each gets its share of the time.
CallOptions share_of(const CallOptions& call_options, std::size_t count) {
  const auto left = left_until(call_options.deadline);
  const auto share = later(BootClock::now(), left / static_cast<int>(count));
  return {std::min(share, call_options.deadline), call_options.cancel_fd};
}

/// Tries the addresses in the order of the hosts.
class HostList {
 public:
  void add(const std::string& host, const std::string& address, const std::string& port) {
    const std::string comma = count_++ == 0 ? "" : ",";
    hosts_.host += comma + host;
    hosts_.hostaddr += comma + address;
    hosts_.port += comma + port;
  }
  bool empty() const { return count_ == 0; }
  const PostgresHosts& hosts() const { return hosts_; }

 private:
  std::size_t count_ = 0;
  PostgresHosts hosts_;
};

}  // namespace

std::optional<PostgresHosts> look_up_hosts(const std::string& url,
                                           const CallOptions& call_options) {
  const LibPqPtr<PQconninfoOption> options(libpq().PQconninfoParse(url.c_str(), nullptr));
  if (options == nullptr) return std::nullopt;
  const auto hosts = entries(parameter(options.get(), "host"));
  auto ports = entries(parameter(options.get(), "port"));
  if (ports.size() == 1) ports.resize(hosts.size(), ports.front());
  const bool has_addresses =
      !parameter(options.get(), "hostaddr").empty() || std::getenv("PGHOSTADDR") != nullptr;
  const bool all_sockets = std::all_of(hosts.begin(), hosts.end(), is_socket);
  if (has_addresses || all_sockets || ports.size() != hosts.size()) return std::nullopt;
  HostList found;
  std::optional<Error> trouble;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (is_socket(hosts[i])) {
      found.add(hosts[i], "", ports[i]);
      continue;
    }
    constexpr int any_port = 1;
    try {
      resolve(hosts[i], any_port, share_of(call_options, hosts.size() - i),
              [&](const std::vector<std::string>& addresses) {
                for (const auto& address : addresses) found.add(hosts[i], address, ports[i]);
              });
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error;
    }
  }
  if (found.empty() && trouble) throw Error(*trouble);
  return found.hosts();
}

}  // namespace dlock
