"""What every store promises. A store proves it with a class that inherits StoreContract.

class TestMyStore(StoreContract):
    @pytest.fixture
    def place(self, tmp_path) -> Place: ...
"""

from stores.contract_box import BoxContract
from stores.contract_controls import ControlsContract
from stores.contract_journal import JournalContract
from stores.contract_notices import NoticesContract
from stores.contract_outgoing import OutgoingContract
from stores.contract_retention import RetentionContract
from stores.contract_transactions import TransactionContract


class StoreContract(
    BoxContract,
    OutgoingContract,
    RetentionContract,
    JournalContract,
    NoticesContract,
    ControlsContract,
    TransactionContract,
):
    """All of it."""
