//! What wrk runs.

/// The script: requests are made before the run, so that the client spends no time on them.
pub(crate) const SCRIPT: &str = r#"
local ask, keys, size = os.getenv("LANDFALL_ASK"), tonumber(os.getenv("LANDFALL_KEYS")), 1024
local requests, at = {}, 0
function init(args)
  local seed, bytes = 12345, {}
  for i = 1, size do
    seed = (seed * 1103515245 + 12345) % 2147483648
    bytes[i] = string.char(33 + math.floor(seed / 65536) % 94)
  end
  local body = table.concat(bytes)
  for i = 1, keys do
    local key = string.format("key:%012d", i - 1)
    if ask == "get" then
      requests[i] = wrk.format("GET", "/kv/" .. key, nil, nil)
    elseif ask == "append" then
      requests[i] = wrk.format("POST", "/wal/paper", nil, body)
    else
      requests[i] = wrk.format("POST", "/kv/" .. key, nil, body)
    end
  end
end
function request()
  at = at % keys + 1
  return requests[at]
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %f %f %f %d\n", summary.requests, summary.duration, latency.mean,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;
