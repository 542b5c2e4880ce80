//! Words for synthetic data. Categories, sectors and cities are spelled as in CVM's files; names of companies and
//! issuers are invented, and no natural person is named.

/// The words before and after the place in a company's name, and its sector.
pub const COMPANY_NAME_TEMPLATES: [(&str, &str, &str); 20] = [
    ("CERÂMICA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    ("CONSTRUTORA", "S.A.", "Construção Civil, Mat. Constr. e Decoração"),
    ("BANCO", "S.A.", "Bancos"),
    ("", "SECURITIZADORA S.A.", "Securitização de Recebíveis"),
    ("SEGURADORA", "S.A.", "Seguradoras e Corretoras"),
    ("METALÚRGICA", "S.A.", "Metalurgia e Siderurgia"),
    ("INDÚSTRIA DE MÁQUINAS", "S.A.", "Máquinas, Equipamentos, Veículos e Peças"),
    ("COMPANHIA DE FIAÇÃO E TECIDOS", "", "Têxtil e Vestuário"),
    ("COMPANHIA ENERGÉTICA", "", "Energia Elétrica"),
    ("TRANSMISSORA", "DE ENERGIA ELÉTRICA S.A.", "Energia Elétrica"),
    ("", "ENERGIA E PARTICIPAÇÕES S.A.", "Emp. Adm. Part. - Energia Elétrica"),
    ("LOJAS", "S.A.", "Comércio (Atacado e Varejo)"),
    ("LATICÍNIOS", "S.A.", "Alimentos"),
    ("USINA", "S.A. - AÇÚCAR E ÁLCOOL", "Agricultura (Açúcar, Álcool e Cana)"),
    ("COMPANHIA DE SANEAMENTO", "", "Saneamento, Serv. Água e Gás"),
    ("", "LOGÍSTICA S.A.", "Serviços Transporte e Logística"),
    ("MINERAÇÃO", "S.A.", "Extração Mineral"),
    ("HOSPITAIS", "S.A.", "Serviços Médicos"),
    ("", "EDUCAÇÃO S.A.", "Educação"),
    ("", "PARTICIPAÇÕES S.A.", ""),
];

/// Root and ending combine to names that sound like places and belong to no company.
pub const PLACE_ROOTS: [&str; 26] = [
    "PIRA", "JAGUA", "TAMBO", "URU", "MOCO", "SUCU", "IBI", "CURU", "JURE", "TAPI", "ABAE", "INHA", "PACU", "SAPU",
    "TUCU", "BATU", "COTI", "JAPE", "OITI", "QUIXA", "SARI", "TIMBU", "VACU", "XERE", "ZABE", "MURI",
];
pub const PLACE_ENDINGS: [&str; 20] = [
    "JUÍ", "RIPÉ", "BOCÓ", "RINGÃ", "CATUÁ", "RAÇUÍ", "MIRÃ", "PEBAÍ", "NUÇU", "NDUVÃ", "TIBOÉ", "MBEÚ", "QUAREÍ",
    "RITEÚ", "COARÉ", "NHANGÁ", "POTIÁ", "XIMBÉ", "MERUÁ", "ZIMBÓ",
];
pub const PLACE_QUALIFIERS: [&str; 6] = ["", "DO NORTE", "DO SUL", "DO LESTE", "DO OESTE", "DE CIMA"];

pub const CITIES: [(&str, &str); 8] = [
    ("SÃO PAULO", "SP"),
    ("SÃO PAULO", "SP"),
    ("RIO DE JANEIRO", "RJ"),
    ("BELO HORIZONTE", "MG"),
    ("PORTO ALEGRE", "RS"),
    ("CURITIBA", "PR"),
    ("BRASÍLIA", "DF"),
    ("FLORIANÓPOLIS", "SC"),
];

/// Issuers that file without a CNPJ and are not in the registry.
pub const FOREIGN_ISSUERS: [(u32, &str); 6] = [
    (80_012, "NORTHWICKE MERIDIAN HOLDINGS PLC"),
    (80_047, "OAKENVALE RESOURCES LTD."),
    (80_063, "TAMARISKE MINING CORPORATION"),
    (80_101, "ESTRELLA DEL OMBÚ S.A."),
    (80_118, "SILVERFENNE LOGISTICS N.V."),
    (80_187, "QUARTZMERE TECHNOLOGIES INC."),
];

/// An issuer with a CNPJ that is not in the registry.
pub const UNREGISTERED_ISSUER: (u32, &str, &str) = (80_152, "VALDORAGO PARTICIPATIONS LTD.", "999990020001");

/// How a filing's reference date is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceDateRule {
    /// The delivery day, or a few days before.
    NearDelivery,
    /// The day of a meeting some weeks later.
    Meeting,
    /// The end of the previous quarter.
    LastQuarterEnd,
    /// The end of the year.
    YearEnd,
}

pub struct IpeCategory {
    pub name: &'static str,
    pub weight: usize,
    pub reference_date_rule: ReferenceDateRule,
    /// `Tipo` and `Especie`.
    pub doc_types_and_kinds: &'static [(&'static str, &'static str)],
    /// Subjects with placeholders such as `{ano}`; empty if CVM's rows of this category have no subject.
    pub subject_templates: &'static [&'static str],
}

/// Rows of this category never have a protocol.
pub const PROCEEDS_CATEGORY: &str = "Relatório Proventos";

const NO_TYPE_OR_KIND: &[(&str, &str)] = &[("", "")];
const OTHER_DOC_TYPE: &[(&str, &str)] = &[("Outros", "")];

pub const CATEGORIES: [IpeCategory; 26] = [
    IpeCategory {
        name: "Assembleia",
        weight: 230,
        reference_date_rule: ReferenceDateRule::Meeting,
        doc_types_and_kinds: &[
            ("AGO", "Ata"),
            ("AGO", "Edital de Convocação"),
            ("AGO/E", "Proposta da Administração"),
            ("AGO/E", "Boletim de voto a distância"),
            ("AGO/E", "Manual para participação"),
            ("AGE", "Ata"),
            ("AGE", "Edital de Convocação"),
            ("AGE", "Mapa Final de Votação Detalhado"),
            ("AGDEB", "Ata"),
            ("AGESP", "Ata"),
        ],
        subject_templates: &[
            "Eleição dos membros do Conselho de Administração e remuneração para {ano}",
            "Tomada das contas dos administradores e destinação do lucro do exercício",
            "Aumento do capital social em {valor} e reforma do Estatuto Social",
            "Alteração das condições da {emissao} emissão de debêntures",
        ],
    },
    IpeCategory {
        name: "Reunião da Administração",
        weight: 180,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[("Conselho de Administração", "Ata"), ("Conselho Fiscal", "Ata"), ("Diretoria", "Ata")],
        subject_templates: &[
            "Aprovação da {emissao} emissão de debêntures simples no valor de {valor}",
            "Aprovação das informações do {trimestre} e distribuição de dividendos",
            "Eleição da Diretoria para o próximo mandato",
            "Prestação de garantias a sociedade controlada",
        ],
    },
    IpeCategory {
        name: "Comunicado ao Mercado",
        weight: 160,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[
            ("Outros Comunicados Não Considerados Fatos Relevantes", ""),
            ("Apresentações a analistas/agentes do mercado", ""),
            ("Esclarecimentos sobre questionamentos da CVM/B3", ""),
            ("Aquisição/Alienação de Participação Acionária (art. 12 da Instr. CVM nº 358)", ""),
        ],
        subject_templates: &[
            "Alienação de participação acionária relevante por fundos de investimento",
            "Apresentação dos resultados do {trimestre} a analistas",
            "Esclarecimentos sobre notícia publicada em {data}",
            "Classificação de risco da {emissao} emissão de debêntures",
        ],
    },
    IpeCategory {
        name: "Dados Econômico-Financeiros",
        weight: 120,
        reference_date_rule: ReferenceDateRule::LastQuarterEnd,
        doc_types_and_kinds: &[
            ("Press-release", ""),
            ("Demonstrações Financeiras Anuais Completas", ""),
            ("Demonstrações Financeiras Intermediárias", ""),
            ("Relatório de Agente Fiduciário", ""),
        ],
        subject_templates: &[
            "Resultados do {trimestre} com comentários sobre receitas e margens",
            "Demonstrações financeiras com relatório dos auditores independentes",
        ],
    },
    IpeCategory {
        name: "Fato Relevante",
        weight: 55,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &[
            "Aquisição da totalidade das ações de sociedade do mesmo setor por {valor}",
            "Memorando de entendimentos não vinculante para incorporação de ações",
            "Aprovação da {emissao} emissão de debêntures no montante de {valor}",
            "Pagamento de juros sobre capital próprio no montante de {valor}",
            "Projeções de investimentos para {ano}",
        ],
    },
    IpeCategory {
        name: "Aviso aos Acionistas",
        weight: 55,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[("Outros avisos", ""), ("", "")],
        subject_templates: &[
            "Pagamento de dividendos aos acionistas inscritos em {data}",
            "Prazo para o exercício do direito de preferência na subscrição de ações",
        ],
    },
    IpeCategory {
        name: "Valores Mobiliários negociados e detidos",
        weight: 60,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[("Posição Consolidada", ""), ("Posição Individual - Cia, Controladas e Coligadas", "")],
        subject_templates: &[],
    },
    IpeCategory {
        name: "Calendário de Eventos Corporativos",
        weight: 25,
        reference_date_rule: ReferenceDateRule::YearEnd,
        doc_types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &[],
    },
    IpeCategory {
        name: PROCEEDS_CATEGORY,
        weight: 20,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: NO_TYPE_OR_KIND,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Estatuto Social",
        weight: 15,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Aviso aos Debenturistas",
        weight: 15,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &["Resgate antecipado facultativo das debêntures da {emissao} emissão"],
    },
    IpeCategory {
        name: "Escrituras e aditamentos de debêntures",
        weight: 14,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[("Escritura", ""), ("Aditamento", "")],
        subject_templates: &["Instrumento particular de escritura da {emissao} emissão de debêntures"],
    },
    IpeCategory {
        name: "Comunicação sobre Transação entre Partes Relacionadas",
        weight: 10,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &["Contrato de mútuo com sociedade controlada no valor de {valor}"],
    },
    IpeCategory {
        name: "Acordo de Acionistas",
        weight: 7,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Relatório de Sustentabilidade",
        weight: 5,
        reference_date_rule: ReferenceDateRule::YearEnd,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Regimento Interno do Conselho de Administração",
        weight: 5,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Código de Conduta",
        weight: 5,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Plano de Remuneração Baseado em Ações",
        weight: 4,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &["Plano de opções de compra de ações"],
    },
    IpeCategory {
        name: "Informações de Companhias em Recuperação Judicial ou Extrajudicial",
        weight: 5,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: &[("Relatório do administrador judicial", ""), ("Plano de recuperação", "")],
        subject_templates: &["Relatório mensal de atividades apresentado em {data}"],
    },
    // Its name contains the name of another category.
    IpeCategory {
        name: "Política de Divulgação de Ato ou Fato Relevante",
        weight: 4,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Política de Dividendos",
        weight: 3,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Política de Negociação das Ações da Companhia",
        weight: 3,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Política de Sustentabilidade",
        weight: 2,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Carta Anual de Governança Corporativa",
        weight: 3,
        reference_date_rule: ReferenceDateRule::YearEnd,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &[],
    },
    IpeCategory {
        name: "Comunicação sobre demandas societárias",
        weight: 3,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &["Ação proposta por acionistas minoritários e pedidos formulados"],
    },
    IpeCategory {
        name: "OPA - Edital de Oferta Pública de Ações",
        weight: 2,
        reference_date_rule: ReferenceDateRule::NearDelivery,
        doc_types_and_kinds: OTHER_DOC_TYPE,
        subject_templates: &["Edital de oferta pública para cancelamento de registro"],
    },
];

/// Agenda items of a shareholders' meeting.
pub const AGENDA_ITEMS: [&str; 8] = [
    "Tomar as contas dos administradores, examinar e votar as demonstrações financeiras",
    "Deliberar sobre a destinação do lucro líquido e a distribuição de dividendos",
    "Fixar o número de membros do Conselho de Administração e elegê-los",
    "Fixar a remuneração global dos administradores",
    "Instalar o Conselho Fiscal e eleger os seus membros",
    "Alterar o artigo 5º do Estatuto Social e consolidá-lo",
    "Ratificar a contratação da empresa avaliadora e aprovar o laudo",
    "Autorizar os administradores a praticar os atos necessários",
];
