from agents.testing import ScriptedModel as _Scripted
from agents.testing import assistant_message as _message
from agents.testing import function_call as _call

model = _Scripted([[_call("pay", '{"amount": 50}', call_id="c1")], [_message("paid")]])
