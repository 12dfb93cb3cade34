from toolcell import base_tools
from toolcell.blocking import Supervisor

supervisor = Supervisor(base_tools())
supervisor.start()
session = supervisor.open_session("main", workspace="project")
