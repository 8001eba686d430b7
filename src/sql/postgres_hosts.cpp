#include "sql/postgres_hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "net/resolve.hpp"
#include "sql/libpq.hpp"

namespace dlock {
namespace {

std::string parameter(const PQconninfoOption* options, const char* name) {
  for (; options != nullptr && options->keyword != nullptr; ++options) {
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

}  // namespace

std::vector<PostgresHost> look_up_hosts(const std::string& url, const CallOptions& call_options) {
  const LibPqPtr<PQconninfoOption> options(libpq().PQconninfoParse(url.c_str(), nullptr));
  // Its own words may quote a password.
  if (options == nullptr) throw_usage("libpq does not know a parameter behind the ?");
  // The environment, and the service that it names, fill in what the URL leaves out. A service that
  // the URL names goes before them, and of that one libpq tells nothing.
  const bool has_service = !parameter(options.get(), "service").empty();
  const LibPqPtr<PQconninfoOption> defaults(has_service ? nullptr : libpq().PQconndefaults());
  const auto value = [&](const char* name) {
    const std::string given = parameter(options.get(), name);
    return given.empty() ? parameter(defaults.get(), name) : given;
  };
  const auto hosts = entries(value("host"));
  auto ports = entries(value("port"));
  // An empty entry of a list is libpq's own port; given alone, it would leave the URL's list.
  if (ports.size() > 1)
    std::replace(ports.begin(), ports.end(), std::string(), std::string("5432"));
  if (ports.size() == 1) ports.resize(hosts.size(), ports.front());
  const bool has_addresses = !value("hostaddr").empty() || std::getenv("PGHOSTADDR") != nullptr;
  const bool all_sockets = std::all_of(hosts.begin(), hosts.end(), is_socket);
  const bool some_empty = std::find(hosts.begin(), hosts.end(), "") != hosts.end();
  if (has_addresses || all_sockets || some_empty || ports.size() != hosts.size()) return {};
  std::vector<PostgresHost> found;
  std::optional<Error> trouble;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (is_socket(hosts[i])) {
      found.push_back({hosts[i], "", ports[i]});
      continue;
    }
    try {
      for (const std::string& address :
           resolve_in_digits(hosts[i], share_of(call_options, hosts.size() - i))) {
        found.push_back({hosts[i], address, ports[i]});
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error;
    }
  }
  if (found.empty() && trouble) throw Error(*trouble);
  return found;
}

}  // namespace dlock
